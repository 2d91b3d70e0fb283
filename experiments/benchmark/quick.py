"""Trains a draw's program in this process and records nothing: for checks without a bisect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from stabexp import experiment as experiments
from stabexp.records import Divergence, StepRecord
from stabexp.training.execute import execute
from stabexp.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What became of it."""

    records: Sequence[StepRecord]
    divergence: Divergence | None


def train_once(file: Path, overrides: Sequence[str] = ()) -> Trained:
    """Train an experiment file from its start, with `key=value` overrides."""
    experiment, _ = experiments.load(file, list(overrides))
    program = experiments.program(experiment, base=file.parent)
    records: list[StepRecord] = []
    run = Run(program.settings, on_step=records.append)
    execute(program, run)
    return Trained(records=records, divergence=run.divergence)


def other_orders(file: Path, *, count: int = 4) -> int:
    """Return in how many of `count` other orders of the same data the experiment trains through.

    A detector that stays silent is not enough: the loss has to end below where it began.
    """
    salts = range(101, 101 + count)  # others than those a bisect tries
    return sum(_learned(train_once(file, [f"interventions.shuffle={salt}"])) for salt in salts)


def _learned(trained: Trained) -> bool:
    losses = [record.loss for record in trained.records]
    return trained.divergence is None and median(losses[-10:]) < 0.9 * losses[0]
