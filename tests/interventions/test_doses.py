"""Doses that change nothing are the control, and the others start in its state."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import ADAMW, COSINE, GPT, assert_same, train

from stabexp.bisection.replay import first_mismatch
from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.state import CheckpointStore
from stabexp.training import Fork, Run, execute


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_doses_that_change_nothing_are_the_control_bit_for_bit(precision):
    settings = {"schedule": COSINE, "clip": 0.5, "precision": precision}
    control = train(**settings)
    nothing = {
        "learning_rate": 1.0,
        "warmup": 4,
        "clip_norm": 0.5,
        "precision": precision,
        "batch_size": 1,
        "shuffle": 0,
    }
    for variable, dose in nothing.items():
        assert_same(control, train(**settings, interventions={variable: dose}))
    assert_same(control, train(**settings, interventions=nothing))


@pytest.mark.parametrize(
    ("variable", "dose"),
    [
        ("learning_rate", 0.5),
        ("clip_norm", 0.2),
        ("precision", "fp64"),
        ("precision", "fp16"),
        ("batch_size", 2),
        ("shuffle", 2),
    ],
)
def test_a_fork_with_a_dose_differs_from_the_run_but_starts_in_its_state(tmp_path, variable, dose):
    given = {
        "name": "doses",
        "steps": 8,
        "task": GPT,
        "optimizer": ADAMW,
        "checkpoint": {"every": 4},
        "schedule": {"warmup_steps": 3},
    }
    made = program(validate(Experiment, Document("doses", given)), base=None)
    original, forked = [], []
    with CheckpointStore(tmp_path / "checkpoints") as store:
        execute(
            made, Run(made.settings, keep_saving=True, checkpoints=store, on_step=original.append)
        )
    from stabexp.interventions import build

    run = Run(
        made.settings,
        fork=Fork(checkpoints=store.directory, step=4),
        interventions=build({variable: dose}),
        on_step=forked.append,
    )
    execute(made, run)
    assert [r.step for r in forked] == [4, 5, 6, 7]
    assert first_mismatch(original, forked)[0] == 4
    assert forked[0].position == original[4].position
    if variable in {"learning_rate", "clip_norm"}:
        assert forked[0].loss == original[4].loss
        assert forked[0].grad_norm == original[4].grad_norm
        assert forked[0].update_ratio < original[4].update_ratio
    if variable == "precision":
        assert forked[0].sample_ids == original[4].sample_ids
        assert forked[0].loss == pytest.approx(original[4].loss, rel=1e-2)
