"""Small programs to train, and the grid of configurations of `experiments/exactness.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.training import Run, execute

_PLACE = Path(__file__).parents[2] / "experiments" / "exactness.py"


@pytest.fixture(scope="session")
def exactness():
    # Loaded by path: experiments are scripts, not part of the package.
    spec = importlib.util.spec_from_file_location("exactness", _PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make_program(tmp_path):
    """Return the program of an experiment given as keys and values."""

    def make(**values):
        given = {"name": "test", "steps": 8, "detectors": {"non_finite": None}, **values}
        return program(validate(Experiment, Document("test", given)), base=tmp_path)

    return make


@pytest.fixture
def train():
    """Run a program; return its records and the run."""

    def run_it(made, **options):
        records = []
        run = Run(made.settings, on_step=records.append, **options)
        execute(made, run)
        return records, run

    return run_it
