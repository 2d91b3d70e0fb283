"""How much slower a watched step is than a bare one, on a GPT and an MLP of 1.0 million parameters.

The watched side is what `stabexp run` gives at default settings: all step figures, the layers
monitor, detectors, the step log on disk, a checkpoint every 50 steps, deterministic algorithms. A
loop that clips by itself is compared with itself. Beside them stands the obvious way to measure
less: two `.item()` per parameter and step. The sides take turns in one process, a block of steps
each, in changing order, so that load on the machine meets all of them; the processor time of the
training thread, which load changes less, is printed too.

    python experiments/step_time.py [gpt or mlp] [rounds] [steps per block]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stabexp.state import CheckpointStore, seed_everything
from stabexp.state.fingerprint import set_deterministic
from stabexp.tasks import Task, load_task, read_batch
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings
from stabexp.tracking.step_log import StepLog
from stabexp.training import Run, RunSettings
from stabexp.training.data import SampleOrder

TASKS = {
    "gpt": ({"width": 144, "layers": 4, "heads": 4, "context": 64}, 16),
    "mlp": ({"width": 700, "depth": 3}, 64),
}
"""Name → arguments and batch size."""
CLIP = 1.0
MANY = 1_000_000
"""Steps of a run; more than are ever made."""


def bare(
    task: Task, batch_size: int, measure: Callable[[nn.Module], None] = lambda model: None
) -> Generator[None, None, None]:
    """Train without stabexp, one step for each `next`."""
    data, model = task.dataset(), task.model()
    optimizer = OptimizerSettings(lr=1e-3).build(model.parameters())
    scheduler = ScheduleSettings().build(optimizer, MANY)
    order, position = SampleOrder(len(data), seed=0), 0
    while True:
        batch = read_batch(data, order.ids(position, batch_size))
        position += batch_size
        loss = task.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        measure(model)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        yield


def naive(model: nn.Module) -> None:
    """Measure each parameter by itself, and wait for each number."""
    for p in model.parameters():
        assert p.grad is not None
        p.grad.norm().item()
        p.norm().item()


def clip(model: nn.Module) -> None:
    """Clip as most loops do."""
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def watched(
    task: Task,
    batch_size: int,
    directory: Path,
    own: Callable[[nn.Module], None] = lambda model: None,
    *,
    monitors: Mapping[str, Any] | None = None,
) -> Generator[None, None, None]:
    """Train with everything that `stabexp run` does beside it, one step for each `next`.

    `monitors` is name → arguments, None for those of a run that asks for none.
    """
    directory.mkdir()
    model = task.model()
    optimizer = OptimizerSettings(lr=1e-3).build(model.parameters())
    scheduler = ScheduleSettings().build(optimizer, MANY)
    measured = {} if monitors is None else {"monitors": monitors}
    with CheckpointStore(directory / "checkpoints") as store:
        run = Run(
            RunSettings(name="step time", steps=MANY, batch_size=batch_size, **measured),
            keep_saving=True,
            checkpoints=store,
            on_step=StepLog(directory / "steps.jsonl").append,
        )
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        for batch in run.steps(task.dataset(), **parts):
            loss = task.loss(model, batch)
            run.log(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            own(model)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            yield


def seconds_per_step(
    side: Iterator[None], steps: int, *, deterministic: bool
) -> tuple[float, float]:
    """Return the mean over a block of steps: on the clock, and of this thread's processor."""
    set_deterministic(deterministic)
    started = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        next(side)
    ended = time.perf_counter(), time.thread_time()
    return (ended[0] - started[0]) / steps, (ended[1] - started[1]) / steps


SIDES = {"watched": "bare", "watched, clips": "clips", "naive": "bare"}
"""What each side is compared with."""


def main(name: str = "gpt", rounds: int = 12, steps: int = 20) -> None:
    """Print the medians over the rounds, and of each round's ratio to its own bare block."""
    torch.set_num_threads(1)
    seed_everything(0)
    arguments, batch = TASKS[name]
    task = load_task(name, arguments)
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "bare": bare(task, batch),
            "watched": watched(task, batch, Path(folder) / "plain"),
            "clips": bare(task, batch, clip),
            "watched, clips": watched(task, batch, Path(folder) / "clips", clip),
            "naive": bare(task, batch, naive),
        }
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
        for number in range(-1, rounds):  # the first round warms up
            for side in list(sides) if number % 2 else list(sides)[::-1]:
                strict = side.startswith("watched")
                found = seconds_per_step(sides[side], steps, deterministic=strict)
                if number >= 0:
                    times[side].append(found)
        for made in sides.values():
            made.close()
    print(f"{sum(p.numel() for p in task.model().parameters()):,} parameters, batch {batch}, one")
    print(f"thread, {rounds} rounds of {steps} steps, load {os.getloadavg()[0]:.1f}")
    for index, clock in enumerate(("wall", "processor")):
        for side, blocks in times.items():
            own = [block[index] for block in blocks]
            other = SIDES.get(side, side)
            ratios = [a / b[index] for a, b in zip(own, times[other], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(
                f"{clock:9} {side:15} {statistics.median(own) * 1e3:7.2f} ms   ÷ {other:5} "
                f"{middle:.3f}  (quartiles {low:.3f} to {high:.3f})"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
