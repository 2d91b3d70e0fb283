"""Tiny real trainings with Trainer, PEFT and TRL, recorded and replayed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything of Hugging Face's is imported

import pytest

from stabexp.interventions import build
from stabexp.records import Divergence, StepRecord
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Program, Run, RunSettings, execute

_PLACE = Path(__file__).parents[3] / "experiments" / "trainers" / "hugging_face.py"


@dataclass(frozen=True)
class Recorded:
    """A run that was recorded, every third state kept, and can be replayed from there."""

    train: Callable[[Run], Any]
    settings: RunSettings
    records: Sequence[StepRecord]
    checkpoints: Path
    divergence: Divergence | None

    def replay(
        self, step: int, *, until: int | None = None, changes: Any = None, **options: Any
    ) -> list[StepRecord]:
        """Return the records from a fork at `step` on, with `changes` (variable → dose)."""
        records: list[StepRecord] = []
        run = Run(
            self.settings,
            fork=Fork(checkpoints=self.checkpoints, step=step, records=self.records[:step]),
            until=len(self.records) if until is None else until,
            on_step=records.append,
            interventions=build(changes or {}),
            **options,
        )
        execute(Program(settings=self.settings, train=self.train), run)
        return records


@pytest.fixture
def record(tmp_path):
    """Record a training with a state every three steps."""
    return partial(_record, tmp_path / "checkpoints")


@pytest.fixture(scope="session")
def record_in():
    """Record a training in a folder that other tests may use too."""
    return _record


def _record(checkpoints: Path, train: Callable[[Run], Any], **settings: Any) -> Recorded:
    given = {"detectors": {"non_finite": {}}, "checkpoint_every": 3, **settings}
    chosen = RunSettings(name="hugging-face", steps=None, threads=1, **given)
    records: list[StepRecord] = []
    store = CheckpointStore(checkpoints, keep=99)
    run = Run(chosen, keep_saving=True, checkpoints=store, on_step=records.append)
    execute(Program(settings=chosen, train=train), run)
    store.close()
    return Recorded(train, chosen, records, checkpoints, run.divergence)


@pytest.fixture(scope="session")
def hugging_face():
    """The example trainings; loaded by path, for experiments are no part of the package."""
    spec = importlib.util.spec_from_file_location("hugging_face", _PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["hugging_face"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def training(hugging_face):
    """Return one of the example trainings as a function of a run."""
    return lambda name, **given: partial(hugging_face.FUNCTIONS[name], **given)
