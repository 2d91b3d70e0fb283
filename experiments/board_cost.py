"""What a scrape of a long run costs, and what the training pays for it: nothing.

    python -m experiments.board_cost          100,000 steps of 50 layers, 225 MB in /tmp

It writes a step log as `monitors: full` does, then reads it as the endpoint does: the whole of it,
then what is new after every 100 further steps, as between two scrapes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from stabexp.boards import ShownRuns, Wanted
from stabexp.boards.collector import RunCollector, encoded
from stabexp.records import StepRecord
from stabexp.tracking import RunDirectory
from stabexp.tracking.step_log import encode_step

KINDS = (
    "grad_norm",
    "weight_norm",
    "update_ratio",
    "activation_min",
    "activation_max",
    "activation_rms",
    "activation_zeros",
    "grad_mean",
    "grad_std",
    "grad_max",
    "grad_min",
    "grad_zeros",
)


def record(step: int, layers: int, every: int) -> StepRecord:
    """Return a step with figures of every layer at the usual cadence."""
    measured = None
    if step % every == 0:
        measured = {
            f"encoder.layer.{i}": dict.fromkeys(KINDS, 0.123456789 + step / 7)
            for i in range(layers)
        }
    return StepRecord(
        step=step,
        time=1e9 + 0.1 * step,
        loss=2.0,
        lr=1e-3,
        grad_norm=1.0,
        update_ratio=1e-3,
        batch_size=32,
        position=32 * step,
        sample_ids=tuple(range(32)),
        seconds=0.1,
        layers=measured,
        metrics={"loss/slope": 0.1, "loss/second_derivative": 0.01},
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.board_cost")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=50)
    parser.add_argument("--every", type=int, default=10, help="steps between figures of layers")
    parser.add_argument("--scrapes", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        directory = RunDirectory.create(
            root / "runs" / "long-run",
            run_id="long-run",
            kind="run",
            name="long-run",
            experiment="stabexp",
            tracking_uri="http://127.0.0.1:9",
        )
        log = directory.path / "steps.jsonl"
        with open(log, "w", encoding="utf-8") as file:
            for step in range(given.steps):
                file.write(encode_step(record(step, given.layers, given.every)) + "\n")
        print(f"{given.steps:,} steps, {given.layers} layers: {log.stat().st_size / 1e6:,.0f} MB")
        shown = ShownRuns(Wanted(root=root, runs="all"))
        print("first scrapes (the log is counted in pieces):")
        while True:
            wall, cpu, size = scrape(shown)
            unread = next(iter(shown._known.values())).steps.unread
            print(
                f"  {1000 * wall:.0f} ms, {1000 * cpu:.0f} ms of processor, {unread:,} bytes left"
            )
            if not unread:
                break
        walls, cpus = [], []
        for number in range(given.scrapes):
            with open(log, "a", encoding="utf-8") as file:
                for step in range(100):
                    at = given.steps + 100 * number + step
                    file.write(encode_step(record(at, given.layers, given.every)) + "\n")
            wall, cpu, size = scrape(shown)
            walls.append(wall)
            cpus.append(cpu)
        print(f"a scrape after 100 further steps, median and largest of {given.scrapes}:")
        print(f"  {1000 * statistics.median(walls):.1f} and {1000 * max(walls):.1f} ms")
        print(f"  {1000 * statistics.median(cpus):.1f} and {1000 * max(cpus):.1f} ms of processor")
        wall, cpu, size = scrape(shown)
        print(f"a scrape without a new step: {1000 * cpu:.1f} ms of processor, {size:,} bytes")


def scrape(shown: ShownRuns) -> tuple[float, float, int]:
    """Return seconds, processor seconds and the size of one answer."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = encoded(RunCollector(shown), "")[0]
    return time.perf_counter() - wall, time.process_time() - cpu, len(answer)


if __name__ == "__main__":
    main()
