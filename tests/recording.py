"""Trains a function as `stabexp run` and a bisect do, without the files around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabexp.records import StepRecord
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Program, Run, RunSettings, execute


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A run and the states before each of its steps."""

    program: Program
    records: Sequence[StepRecord]
    checkpoints: Path
    run: Run

    def replay(self, step: int, **options: Any) -> list[StepRecord]:
        """Return the records of a replay from `step` on, to the end of the run."""
        fork = Fork(checkpoints=self.checkpoints, step=step, records=self.records[:step])
        return executed(self.program, fork=fork, until=len(self.records), **options)[0]


def record(train: Callable[[Run], None], directory: Path, **settings: Any) -> Recorded:
    """Train, and save the state before every step."""
    usual = {"name": "test", "steps": None, "detectors": {"non_finite": None}}
    chosen = RunSettings(**{**usual, "checkpoint_every": 1, **settings})
    program = Program(settings=chosen, train=train)
    with CheckpointStore(directory, keep=1000) as store:
        records, run = executed(program, checkpoints=store, keep_saving=True)
    return Recorded(program=program, records=records, checkpoints=directory, run=run)


def executed(program: Program, **options: Any) -> tuple[list[StepRecord], Run]:
    """Train with a new run; return its records and the run."""
    records: list[StepRecord] = []
    run = Run(program.settings, on_step=records.append, **options)
    execute(program, run)
    return records, run
