"""Trainings given as keys and values, and what it means that two are the same."""

from __future__ import annotations

from stabexp.bisection.replay import first_mismatch
from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.state import first_difference
from stabexp.training import Run, execute

GPT = {
    "name": "gpt",
    "args": {"width": 16, "heads": 2, "context": 16, "stride": 2000, "dropout": 0.1},
}


MLP = {"name": "mlp", "args": {"width": 16, "norm": "batch"}}


ADAMW = {"lr": 0.004, "weight_decay": 0.3}


SGD = {"name": "sgd", "lr": 0.125}


COSINE = {"name": "cosine", "warmup_steps": 4}


def train(**values):
    """Return the records and the final state of an experiment given as keys and values."""
    given = {
        "name": "doses",
        "steps": 10,
        "task": GPT,
        "optimizer": ADAMW,
        "batch": {"size": 8},
        "detectors": {"non_finite": None},
        **values,
    }
    made = program(validate(Experiment, Document("doses", given)), base=None)
    records = []
    run = Run(made.settings, on_step=records.append)
    execute(made, run)
    assert run.divergence is None
    return records, run.snapshot()


def assert_same(one, other):
    assert first_mismatch(one[0], other[0]) == (None, "")
    assert first_difference(one[1], other[1]) is None


def assert_different(one, other):
    assert first_mismatch(one[0], other[0]) != (None, "")
