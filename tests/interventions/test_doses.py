"""Each intervention makes exactly its change: the same training written out gives the same bits."""

from __future__ import annotations

import pytest

from stabexp.bisection.replay import first_mismatch
from stabexp.config import Document, validate
from stabexp.experiment import Experiment, program
from stabexp.state import CheckpointStore, first_difference
from stabexp.training import Fork, Run, execute

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


def test_a_clip_above_every_norm_changes_nothing():
    control = train()
    clipped = train(interventions={"clip_norm": 1e6})
    assert_same(control, clipped)
    assert all(record.clip_coefficient == 1.0 for record in clipped[0])


@pytest.mark.parametrize("optimizer", [ADAMW, SGD, {**SGD, "momentum": 0.9}, {"name": "adam"}])
@pytest.mark.parametrize("schedule", [{}, COSINE, {"name": "one_cycle"}])
def test_half_the_rate_is_training_with_half_the_rate(optimizer, schedule):
    half = {**optimizer, "lr": optimizer.get("lr", 1e-3) / 2}
    written_out = train(optimizer=half, schedule=schedule)
    changed = train(optimizer=optimizer, schedule=schedule, interventions={"learning_rate": 0.5})
    assert first_mismatch(written_out[0], changed[0]) == (None, "")
    assert [r.lr for r in changed[0]] == [r.lr for r in written_out[0]]


@pytest.mark.parametrize("optimizer", [ADAMW, SGD])
def test_another_factor_than_a_power_of_two_agrees_up_to_rounding(optimizer):
    written_out = train(optimizer={**optimizer, "lr": 0.3 * optimizer["lr"]}, schedule=COSINE)
    changed = train(optimizer=optimizer, schedule=COSINE, interventions={"learning_rate": 0.3})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)
        assert other.loss == pytest.approx(one.loss, rel=1e-5)


def test_rate_zero_freezes_the_weights():
    records, _ = train(interventions={"learning_rate": 0.0})
    assert {record.update_ratio for record in records} == {0.0}
    assert len({record.param_norm for record in records}) == 1


def test_warmup_is_the_schedules_warmup_bit_for_bit_where_there_was_none():
    written_out = train(schedule={"warmup_steps": 6})
    changed = train(interventions={"warmup": 6})
    assert first_mismatch(written_out[0], changed[0]) == (None, "")
    assert changed[0][0].lr == pytest.approx(0.004 / 6)
    assert changed[0][-1].lr == 0.004


def test_warmup_replaces_a_shorter_one_up_to_rounding():
    written_out = train(schedule={"warmup_steps": 7})
    changed = train(schedule={"warmup_steps": 3}, interventions={"warmup": 7})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)
        assert other.loss == pytest.approx(one.loss, rel=1e-5)


def test_warmup_before_a_decay_is_the_schedules_own_while_it_rises_and_ends_at_the_same_rate():
    written_out = train(schedule={"name": "linear", "warmup_steps": 5})
    changed = train(schedule={"name": "linear"}, interventions={"warmup": 5})
    rates = [r.lr for r in changed[0]]
    assert rates == sorted(rates[:5]) + sorted(rates[5:], reverse=True)
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr <= one.lr or other.step >= 5


def test_warmup_zero_takes_the_ramp_away():
    written_out = train()
    changed = train(schedule={"warmup_steps": 8}, interventions={"warmup": 0})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "fp64"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_clip_is_the_files_clip_bit_for_bit(precision, accumulate):
    settings = {"precision": precision, "batch": {"size": 8, "accumulate": accumulate}}
    written_out = train(**settings, clip=0.3)
    assert_same(written_out, train(**settings, interventions={"clip_norm": 0.3}))
    assert any(record.clip_coefficient < 0.9 for record in written_out[0])


@pytest.mark.parametrize(("dose", "effective"), [(0.2, 0.2), (5.0, 0.4)])
def test_of_two_clips_the_tighter_one_holds(dose, effective):
    changed = train(clip=0.4, interventions={"clip_norm": dose})
    assert_same(train(clip=effective), changed)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_four_times_the_batch_is_four_times_the_size(accumulate):
    written_out = train(task=MLP, batch={"size": 32, "accumulate": accumulate})
    changed = train(
        task=MLP,
        batch={"size": 8, "accumulate": accumulate},
        interventions={"batch_size": 4},
    )
    assert_same(written_out, changed)
    assert [r.sample_ids for r in changed[0]] == [r.sample_ids for r in written_out[0]]


@pytest.mark.parametrize("given", ["fp32", "fp16", "pure_fp16"])
@pytest.mark.parametrize("dose", ["fp32", "bf16", "fp16", "fp16_unscaled", "pure_bf16", "fp64"])
def test_precision_from_the_start_is_the_files_precision(given, dose):
    written_out = train(precision=dose, steps=4)
    assert_same(written_out, train(precision=given, interventions={"precision": dose}, steps=4))


def test_another_order_shows_the_same_samples():
    settings = {"task": MLP, "batch": {"size": 599}, "steps": 3}
    control, changed = train(**settings), train(**settings, interventions={"shuffle": 1})
    assert_different(control, changed)
    ids = [sorted(i for r in records for i in r.sample_ids) for records in (control[0], changed[0])]
    assert ids[0] == ids[1] == list(range(1797))


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
