"""How much slower a step of Lightning is with the callback, on a GPT of 1.0 million parameters.

The watched side is what `stabexp run` gives at default settings: all step figures, the layers
monitor, detectors, the step log on disk, a checkpoint every 50 steps, deterministic algorithms. The
sides take turns in one process, a fit of 60 steps each, of which the first ten do not count, so
that load on the machine meets both. The processor time of the training thread, which load changes
less, is printed too.

    python -m experiments.trainers.step_time_lightning [rounds]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from stabexp.integrations.lightning import StabexpCallback
from stabexp.state import CheckpointStore, seed_everything
from stabexp.state.fingerprint import set_deterministic
from stabexp.tasks import load_task
from stabexp.tracking.step_log import StepLog
from stabexp.training import Run, RunSettings

WARM, STEPS = 10, 60


class Gpt(L.LightningModule):
    """The built-in GPT, clipped at 1 as most are."""

    def __init__(self) -> None:
        super().__init__()
        self.task = load_task("gpt", {"width": 144, "layers": 4, "heads": 4, "context": 64})
        self.model = self.task.model()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.task.loss(self.model, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Clock(Callback):
    """Seconds per step, on the clock and of this thread's processor."""

    def __init__(self) -> None:
        self.begun = self.ended = (0.0, 0.0)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == WARM:
            self.begun = time.perf_counter(), time.thread_time()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.ended = time.perf_counter(), time.thread_time()

    @property
    def per_step(self) -> tuple[float, float]:
        wall, processor = (b - a for a, b in zip(self.begun, self.ended, strict=True))
        return wall / (STEPS - WARM), processor / (STEPS - WARM)


def fit(*callbacks: Callback) -> tuple[float, float]:
    """Train for `STEPS` steps, and return seconds per step."""
    clock = Clock()
    module = Gpt()
    trainer = L.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        # The clock comes first, so that what others do at the end of a batch counts.
        callbacks=[clock, *callbacks],
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data: Any = module.task.dataset()
    trainer.fit(module, DataLoader(data, batch_size=16, shuffle=True))
    return clock.per_step


def bare() -> tuple[float, float]:
    set_deterministic(False)
    return fit()


def watched(directory: Path) -> tuple[float, float]:
    set_deterministic(True)
    directory.mkdir()
    run = Run(
        RunSettings(name="step time", steps=None),
        keep_saving=True,
        checkpoints=CheckpointStore(directory / "checkpoints"),
        on_step=StepLog(directory / "steps.jsonl").append,
    )
    try:
        return fit(StabexpCallback(run))
    finally:
        run.close()


def main(rounds: int = 12) -> None:
    """Print the medians over the rounds, and of each round's ratio."""
    torch.set_num_threads(1)
    seed_everything(0)
    print(f"{sum(p.numel() for p in Gpt().parameters()):,} parameters, {rounds} rounds")
    sides: dict[str, list[tuple[float, float]]] = {"bare": [], "watched": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(-1, rounds):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            for side in order:
                took = bare() if side == "bare" else watched(Path(folder) / str(turn))
                if turn >= 0:  # the first round warms up
                    sides[side].append(took)
    for index, kind in enumerate(("on the clock", "of the processor")):
        plain, with_us = ([took[index] for took in sides[side]] for side in sides)
        ratios = [b / a for a, b in zip(plain, with_us, strict=True)]
        print(
            f"{kind}: {1000 * statistics.median(plain):.1f} ms bare, "
            f"{1000 * statistics.median(with_us):.1f} ms watched, ratio "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
