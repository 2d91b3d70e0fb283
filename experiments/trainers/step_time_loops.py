"""How much slower a step of one's own loop is with stabexp, plain or with Accelerate.

On a GPT of 1.0 million parameters, clipped at 1. The watched side is what `stabexp run` gives at
default settings: all step figures, the layers monitor, detectors, the step log on disk, a
checkpoint every 50 steps, deterministic algorithms. The sides take turns in one process, a block of
steps each, in changing order, so that load on the machine meets both; the processor time of the
training thread, which load changes less, is printed too.

    python -m experiments.trainers.step_time_loops [plain|accelerate] [rounds] [steps per block]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

from experiments.step_time import MANY, seconds_per_step
from stabexp.integrations.accelerate import accelerated
from stabexp.state import CheckpointStore, seed_everything
from stabexp.tasks import load_task
from stabexp.tracking.step_log import StepLog
from stabexp.training import Run, RunSettings

Steps = Generator[None, None, None]

GPT = {"width": 144, "layers": 4, "heads": 4, "context": 64}
BATCH = 16


class Bare:
    """Stands in for a run: iterates the loader and waits for the loss, as a loop that prints it."""

    def log(self, loss: torch.Tensor) -> None:
        self.loss = loss

    def steps(self, loader: Any, **parts: Any) -> Iterator[Any]:
        while True:
            for batch in loader:
                yield batch
                self.loss.item()


def watched(directory: Path) -> Run:
    """Return a run with all that `stabexp run` does beside the training."""
    return Run(
        RunSettings(name="step time", steps=MANY, batch_size=BATCH),
        keep_saving=True,
        checkpoints=CheckpointStore(directory / "checkpoints"),
        on_step=StepLog(directory / "steps.jsonl").append,
    )


def plain(run: Any) -> Steps:
    """Train one step for each `next`, from a sampler of the loop's own."""
    task = load_task("gpt", GPT)
    data, model = task.dataset(), task.model()
    sampler = WeightedRandomSampler([1.0] * len(data), len(data))
    loader: DataLoader[Any] = DataLoader(data, BATCH, sampler=sampler)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in run.steps(loader, model=model, optimizer=optimizer):
        loss = task.loss(model, batch)
        run.log(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield


def accelerate(run: Any) -> Steps:
    """Train one step for each `next`, with Accelerate."""
    task = load_task("gpt", GPT)
    accelerator = Accelerator(cpu=True)
    optimizer: Any = torch.optim.AdamW((own := task.model()).parameters(), lr=1e-3)
    data: Any = task.dataset()
    loader: Any = DataLoader(data, BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(own, optimizer, loader)
    extra = accelerated(accelerator)
    for batch in run.steps(loader, model=model, optimizer=optimizer, extra=extra):
        with accelerator.accumulate(model):
            loss = task.loss(model, batch)
            run.log(loss)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        yield


def main(kind: str = "plain", rounds: str = "12", steps: str = "20") -> None:
    """Print the medians over the rounds, and of each round's ratio to its own bare block."""
    torch.set_num_threads(1)
    seed_everything(0)
    train = {"plain": plain, "accelerate": accelerate}[kind]
    with tempfile.TemporaryDirectory() as folder:
        sides = {"bare": train(Bare()), "watched": train(watched(Path(folder)))}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for number in range(-1, int(rounds)):  # the first round warms up
            for name in list(sides) if number % 2 else list(sides)[::-1]:
                side, alike = sides[name], name == "watched"
                found = seconds_per_step(side, int(steps), deterministic=alike)
                if number >= 0:
                    times[name].append(found)
        for side in sides.values():
            side.close()
    print(f"{kind}: {rounds} rounds of {steps} steps, load {os.getloadavg()[0]:.1f}")
    for index, clock in enumerate(("wall", "processor")):
        own = {name: [block[index] for block in blocks] for name, blocks in times.items()}
        ratios = [a / b for a, b in zip(own["watched"], own["bare"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        medians = ", ".join(
            f"{name} {statistics.median(s) * 1e3:.2f} ms" for name, s in own.items()
        )
        print(f"{clock}: {medians}, ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
