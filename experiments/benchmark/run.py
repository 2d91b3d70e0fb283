"""Runs and bisects the draws, several at a time, and goes on where it was after a kill.

`python -m experiments.benchmark` does all of them and writes docs/benchmark.md.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.benchmark.draws import Draw, all_draws, selected
from experiments.benchmark.page import write_page
from experiments.benchmark.results import Grid, Result, read_results, write_result

WORK = Path(tempfile.gettempdir()) / "stabexp-benchmark"
"""Where results are kept until the page is written."""


def run_draw(name: str, *, work: str, grid: bool) -> str:
    """Run and bisect one draw in a fresh place, write its result, and return a line for people."""
    import torch

    torch.set_num_threads(1)
    draw = next(draw for draw in all_draws() if draw.name == name)
    with tempfile.TemporaryDirectory(prefix="program-") as folder:
        result = _result(draw, Path(folder), grid=grid)
    write_result(result, Path(work))
    mark = "ok" if result.right else "WRONG"
    if not result.diverged and not draw.spare:
        mark = "did not diverge"
    return (
        f"{draw.name}: {result.found} ({draw.cause}) {mark}, {result.replays} replays, "
        f"{result.replayed_steps} steps, {result.seconds:.0f} s {result.error}"
    )


def _result(draw: Draw, folder: Path, *, grid: bool) -> Result:
    import stabexp
    from experiments.benchmark.quick import other_orders
    from experiments.benchmark.seeding import write
    from stabexp.errors import StabexpError
    from stabexp.records import to_json

    started = time.monotonic()
    fault = draw.fault()
    values: dict[str, Any] = {
        "name": draw.name,
        "entry": draw.entry.name,
        "family": draw.family,
        "cause": draw.cause,
        "also": tuple(draw.entry.also),
        "spare": draw.spare,
        "held_out": draw.held_out,
        "strikes": fault.strikes(),
        "samples": fault.samples(),
    }
    _keep_delivery_out()
    root = folder / "runs"
    try:
        run = stabexp.run(write(draw, folder / "program"), root=root, drain_seconds=0)
        values["run_steps"] = run.steps
        if run.divergence is not None:
            values |= {"onset": run.divergence.onset, "detected": run.divergence.detected}
            verdict = stabexp.bisect(run.run_id, root=root, workers=0, drain_seconds=0)
            loaded = stabexp.load(run.run_id, root=root)
            values |= {
                "found": verdict.cause,
                "found_samples": verdict.culprit.samples if verdict.culprit else (),
                "confidence": verdict.confidence,
                "telemetry": verdict.telemetry.partition(":")[0],
                "cures": tuple(cure.variable for cure in verdict.cures if cure.robust),
                "replays": verdict.trials,
                "replayed_steps": verdict.replayed_steps,
                "summary": verdict.summary,
                "trials": tuple(_short(trial) for trial in loaded.trial_records),
                "verdict": to_json(verdict),
            }
            if draw.cause == "marginal":
                values["orders_survived"] = other_orders(folder / "program" / "experiment.yaml")
            if grid:
                values["grid"] = _grid(draw, loaded, folder / "program", verdict.good_step)
    except StabexpError as error:
        values |= {"found": "error", "error": f"{type(error).__name__}: {error}"}
    return Result(**values, seconds=time.monotonic() - started)


def _grid(draw: Draw, loaded: Any, base: Path, from_step: int) -> Grid:
    from experiments.benchmark.grid import full_grid
    from experiments.benchmark.programs import family

    classes = family(draw.family)().class_count()
    trivial = math.log(classes) if classes else None
    return full_grid(loaded, base=base, from_step=from_step, trivial_loss=trivial)


def _short(trial: Any) -> dict[str, Any]:
    return {
        "role": trial.spec.role,
        "changes": {change.variable: str(change.dose)[:80] for change in trial.spec.changes},
        "from": trial.spec.from_step,
        "steps": trial.steps,
        "outcome": trial.outcome,
    }


def _keep_delivery_out() -> None:
    """Start no process that ships to MLflow: hundreds of short runs would wait for its imports."""
    import stabexp.api
    import stabexp.tracking.uploader  # noqa: F401

    for name, module in list(sys.modules.items()):
        if name.startswith("stabexp.") and hasattr(module, "start_uploader"):
            vars(module)["start_uploader"] = lambda directory: _NoUploader()


class _NoUploader:
    """Stands where the process would be."""

    def poll(self) -> None:
        """Do nothing."""


def run_all(draws: Sequence[Draw], *, work: Path, jobs: int, grid: bool) -> Iterator[str]:
    """Run the draws that have no result yet; yield a line for each that ends."""
    done = {file.stem for file in work.glob("*.json")}
    names = [draw.name for draw in draws if draw.name not in done]
    # No `max_tasks_per_child`: Python 3.11 can wait for ever when a child is replaced.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_draw, name, work=str(work), grid=grid): name for name in names}
        for number, future in enumerate(as_completed(waiting), start=1):
            try:
                line = future.result()
            except Exception as error:  # one broken draw must not end the others
                line = f"{waiting[future]}: FAILED {type(error).__name__}: {error}"
            yield f"{number} of {len(names)} {line}"


def labelled(results: Sequence[Result], draws: Sequence[Draw]) -> list[Result]:
    """Return the results of these draws with the labels of today, whenever they were made."""
    known = {draw.name: draw for draw in draws}
    return [
        replace(result, cause=draw.cause, also=tuple(draw.entry.also), spare=draw.spare)
        for result in results
        if (draw := known.get(result.name)) is not None
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark", description=__doc__)
    parser.add_argument("--only", default="", help="faults, causes or draws, comma-separated")
    parser.add_argument("--families", default="", help="program families, comma-separated")
    parser.add_argument("--heldout", action="store_true", help="the held-out families only")
    parser.add_argument("--tuning", action="store_true", help="all but the held-out families")
    parser.add_argument("--limit", type=int, help="so many draws at most, evenly spread")
    parser.add_argument("--jobs", type=int, default=2, help="draws at a time")
    parser.add_argument("--grid", action="store_true", help="also replay the one-at-a-time grid")
    parser.add_argument("--work", type=Path, default=WORK, help="results so far")
    parser.add_argument("--list", action="store_true", help="name the draws, and run none")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    arguments = parser.parse_args(argv)
    draws = selected(
        all_draws(),
        only=frozenset(filter(None, arguments.only.split(","))),
        families=frozenset(filter(None, arguments.families.split(","))),
        held_out=True if arguments.heldout else False if arguments.tuning else None,
        limit=arguments.limit,
    )
    if arguments.list:
        print("\n".join(draw.name for draw in draws))
        return 0
    for line in run_all(draws, work=arguments.work, jobs=arguments.jobs, grid=arguments.grid):
        print(line, flush=True)
    results = labelled(read_results(arguments.work), draws)
    print(f"\n{write_page(results, arguments.write)}")
    return 0
