"""How much slower a step of Hugging Face's Trainer is with the callback, on 1.0 million parameters.

The watched side is what `stabexp run` gives at default settings: all step figures, the layers
monitor, detectors, the step log on disk, a checkpoint every 50 steps, deterministic algorithms. The
sides take turns in one process, a training of 60 steps each, of which the first ten do not count,
so that load on the machine meets both. The processor time of the training thread, which load
changes less, is measured too.

    python -m experiments.trainers.step_time hugging_face [rounds]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from stabexp.integrations.transformers import StabexpCallback
from stabexp.state import CheckpointStore, seed_everything
from stabexp.state.fingerprint import set_deterministic
from stabexp.tasks.text import VOCABULARY, tokens
from stabexp.tracking.step_log import StepLog
from stabexp.training import Run, RunSettings

WARM, STEPS = 10, 60
CONTEXT, BATCH = 64, 16


class Windows(Dataset[dict[str, Tensor]]):
    """Passages of the standard library's source, by characters."""

    def __len__(self) -> int:
        return len(tokens()) // CONTEXT

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        window = tokens()[index * CONTEXT :][:CONTEXT].long()
        return {"input_ids": window, "labels": window}


class Clock(TrainerCallback):
    """Seconds per step, on the clock and of this thread's processor."""

    def __init__(self) -> None:
        self.begun = self.ended = (0.0, 0.0)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == WARM:
            self.begun = time.perf_counter(), time.thread_time()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ended = time.perf_counter(), time.thread_time()

    @property
    def per_step(self) -> tuple[float, float]:
        wall, processor = (b - a for a, b in zip(self.begun, self.ended, strict=True))
        return wall / (STEPS - WARM), processor / (STEPS - WARM)


def train(folder: Path, callbacks: Sequence[TrainerCallback]) -> tuple[float, float]:
    """Train for `STEPS` steps, and return seconds per step."""
    clock = Clock()
    config = GPT2Config(
        vocab_size=VOCABULARY,
        bos_token_id=0,
        eos_token_id=0,
        n_positions=CONTEXT,
        n_embd=144,
        n_layer=4,
        n_head=4,
    )
    Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            str(folder / "out"),
            per_device_train_batch_size=BATCH,
            max_steps=STEPS,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=2 * STEPS,
        ),
        train_dataset=Windows(),
        # The clock comes first, so that what others do in a step counts.
        callbacks=[clock, *callbacks],
    ).train()
    return clock.per_step


def bare(folder: Path) -> tuple[float, float]:
    """Return seconds per step without stabexp."""
    set_deterministic(False)
    return train(folder, [])


def watched(folder: Path) -> tuple[float, float]:
    """Return seconds per step with all that `stabexp run` does beside the training."""
    set_deterministic(True)
    run = Run(
        RunSettings(name="step time", steps=None),
        keep_saving=True,
        checkpoints=CheckpointStore(folder / "checkpoints"),
        on_step=StepLog(folder / "steps.jsonl").append,
    )
    try:
        return train(folder, [StabexpCallback(run)])
    finally:
        run.close()


def main(rounds: str = "12") -> None:
    """Print the medians over the rounds, and of each round's ratio."""
    torch.set_num_threads(1)
    seed_everything(0)
    sides: dict[str, list[tuple[float, float]]] = {"bare": [], "watched": []}
    with tempfile.TemporaryDirectory() as root:
        for turn in range(-1, int(rounds)):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            for side in order:
                folder = Path(root) / f"{side}-{turn}"
                folder.mkdir()
                took = bare(folder) if side == "bare" else watched(folder)
                if turn >= 0:  # the first round warms up
                    sides[side].append(took)
    for index, kind in enumerate(("on the clock", "of the processor")):
        plain, with_us = ([took[index] for took in sides[side]] for side in sides)
        ratios = [b / a for a, b in zip(plain, with_us, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{kind}: {1000 * statistics.median(plain):.1f} ms bare, "
            f"{1000 * statistics.median(with_us):.1f} ms watched, ratio {middle:.3f} "
            f"(quartiles {low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
