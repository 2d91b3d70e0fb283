"""Records survive being written and read, bit for bit, and a spec's key names the replay."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import typing
from pathlib import Path

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp import records
from stabexp.records import (
    Change,
    CheckpointInfo,
    Culprit,
    Cure,
    Divergence,
    Evidence,
    Hypothesis,
    RuledOut,
    RunResult,
    StepRecord,
    TrialRecord,
    TrialSpec,
    Verdict,
    from_json,
    to_json,
)

KINDS = (
    StepRecord,
    Divergence,
    CheckpointInfo,
    Change,
    TrialSpec,
    TrialRecord,
    Evidence,
    Cure,
    Culprit,
    Hypothesis,
    RuledOut,
    Verdict,
)

words = st.text(max_size=8)
numbers = st.floats(allow_nan=True, allow_infinity=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**53), 2**53)
# A dose is never NaN or infinite; what text a format's name is, it may be.
doses = st.one_of(finite, whole, words)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), whole, finite, words),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
changes = st.builds(Change, variable=words, dose=doses)
divergences = st.builds(Divergence, value=numbers, limit=numbers, detected=whole, onset=whole)
specs = st.builds(
    TrialSpec,
    changes=st.lists(changes, max_size=2).map(tuple),
    from_step=whole,
    until_step=whole,
    from_trial=words,
    save_at=st.lists(whole, max_size=3).map(tuple),
    patch=st.dictionaries(words, plain, max_size=3),
    instruments=st.lists(words, max_size=2).map(tuple),
    reason=words,
)
trials = st.builds(
    TrialRecord,
    spec=specs,
    divergence=st.none() | divergences,
    start_loss=numbers,
    end_loss=numbers,
    mismatch=st.none() | whole,
    mismatch_field=words,
    mismatch_tensor=words,
    metrics=st.dictionaries(words, numbers, max_size=3),
    findings=st.dictionaries(words, plain, max_size=2),
    seconds=numbers,
    number=whole,
    name=words,
    directory=words,
    note=words,
)
steps = st.builds(
    StepRecord,
    time=finite,
    loss=numbers,
    lr=numbers,
    grad_norm=numbers,
    clip_coefficient=numbers,
    update_ratio=numbers,
    param_norm=numbers,
    loss_scale=st.none() | numbers,
    skipped=st.booleans(),
    sample_ids=st.lists(whole, max_size=4).map(tuple),
    digest=words,
    layers=st.none()
    | st.dictionaries(words, st.dictionaries(words, numbers, max_size=2), max_size=2),
    metrics=st.dictionaries(words, numbers, max_size=3),
)
evidence = st.builds(Evidence, trials=st.lists(words, max_size=2).map(tuple))
cures = st.builds(
    Cure,
    dose=doses,
    original=st.none() | doses,
    stronger_dose=st.none() | doses,
    milder_dose=st.none() | doses,
    removed=numbers,
)
culprits = st.builds(
    Culprit,
    samples=st.lists(whole, max_size=3).map(tuple),
    modules=st.lists(words, max_size=2).map(tuple),
    code=words,
    remedy=words,
)
guesses = st.builds(Hypothesis, weight=st.floats(0, 1))
excluded = st.builds(RuledOut, trials=st.lists(words, max_size=2).map(tuple))
verdicts = st.builds(
    Verdict,
    confidence=st.floats(0, 1),
    path=st.lists(evidence, max_size=2).map(tuple),
    cures=st.lists(cures, max_size=2).map(tuple),
    ruled_out=st.lists(excluded, max_size=2).map(tuple),
    fix=st.dictionaries(words, plain, max_size=2),
    culprit=st.none() | culprits,
    point_of_no_return=st.none() | whole,
    hypotheses=st.lists(guesses, max_size=2).map(tuple),
    divergence=divergences,
)


def same(one, other):
    """Compare by value and by type, with NaN equal to NaN and 0.0 different from -0.0 and 0."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and not math.isnan(one):
        return one.hex() == other.hex()
    return one == other or str(one) == str(other) == "nan"


def through_text(record):
    text = json.dumps(to_json(record), allow_nan=False)
    return from_json(type(record), json.loads(text))


@given(
    st.one_of(
        steps, divergences, specs, trials, evidence, cures, culprits, guesses, excluded, verdicts
    )
)
def test_a_record_comes_back_from_strict_json_bit_for_bit(record):
    assert same(through_text(record), record)


@given(trials)
def test_writing_again_gives_the_same_text(record):
    assert to_json(through_text(record)) == to_json(record)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308])
def test_every_loss_is_kept_exactly(value):
    record = StepRecord(step=0, time=0.0, loss=value, lr=0.1, grad_norm=1.0)
    assert same(through_text(record), record)


@pytest.mark.parametrize(
    ("dose", "kind"), [(2, int), (2.0, float), (0.35, float), ("fp32", str), ("2", str)]
)
def test_a_dose_keeps_its_type(dose, kind):
    found = through_text(Change(variable="x", dose=dose))
    assert (found.dose, type(found.dose)) == (dose, kind)


def test_a_newer_versions_fields_are_ignored_and_missing_ones_refused():
    data = to_json(
        CheckpointInfo(step=3, file="a", sha256="b", bytes=1, state_hash="c", finite=True)
    )
    assert from_json(CheckpointInfo, {**data, "colour": "red"}).step == 3
    del data["file"]
    with pytest.raises(pydantic.ValidationError, match="file"):
        from_json(CheckpointInfo, data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Change, {"variable": "x", "dose": [1]}),
        (Change, {"variable": 3, "dose": 1}),
        (TrialSpec, {"role": "guess", "from_step": 0, "until_step": 1}),
        (Divergence, {"detector": "x"}),
    ],
)
def test_a_wrong_type_is_refused(kind, data):
    with pytest.raises(pydantic.ValidationError):
        from_json(kind, data)


@pytest.mark.parametrize("kind", [*KINDS, RunResult])
def test_records_are_frozen_and_given_by_name(kind):
    assert kind.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(kind))


SPEC = TrialSpec(
    role="dose",
    changes=(Change(variable="learning_rate", dose=0.5),),
    from_step=30,
    until_step=132,
    reason="does it cure?",
)


def test_equal_specs_have_equal_keys_and_every_difference_that_matters_shows():
    different = [
        dataclasses.replace(SPEC, **change)
        for change in (
            {"role": "placebo"},
            {"changes": ()},
            {"changes": (Change(variable="learning_rate", dose=0.25),)},
            {"changes": (Change(variable="clip_norm", dose=0.5),)},
            {"changes": (*SPEC.changes, Change(variable="clip_norm", dose=0.5))},
            {"from_step": 29},
            {"until_step": 133},
            {"from_trial": "0123456789ab"},
            {"patch": {"optimizer.lr": 0.1}},
            {"patch": {"optimizer.lr": 0.2}},
            {"instruments": ("locate",)},
            {"instruments": ("locate", "rules")},
        )
    ]
    keys = [spec.key for spec in (SPEC, *different)]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 12 and int(key, 16) >= 0 for key in keys)


def test_a_reason_or_checkpoints_kept_on_the_way_make_no_other_replay():
    assert dataclasses.replace(SPEC, reason="why not?").key == SPEC.key
    assert dataclasses.replace(SPEC, save_at=(47, 132)).key == SPEC.key


@given(specs)
def test_a_key_is_the_same_after_writing_and_reading(spec):
    assert through_text(spec).key == spec.key


@given(st.dictionaries(words, plain, min_size=2, max_size=4))
def test_the_order_of_a_patch_makes_no_other_replay(patch):
    turned = dict(reversed(patch.items()))
    one, other = (dataclasses.replace(SPEC, patch=p) for p in (patch, turned))
    assert one.key == other.key


def test_keys_stay_as_they_are_so_that_an_earlier_bisect_is_found_again():
    # A change here makes every trial on disk run again.
    assert SPEC.key == "ece42a9d574a"


def test_what_a_trial_changed_and_how_long_it_ran_can_be_asked():
    trial = TrialRecord(spec=SPEC, outcome="cured", last_step=131)
    assert (SPEC.variable, SPEC.dose, trial.steps) == ("learning_rate", 0.5, 102)
    control = dataclasses.replace(SPEC, changes=())
    assert (control.variable, control.dose) == (None, None)
    nothing = TrialRecord(spec=SPEC, outcome="inconclusive", last_step=29)
    assert nothing.steps == 0


def test_every_variable_can_be_a_cause_and_every_cause_has_a_family():
    causes = set(typing.get_args(records.Cause))
    assert set(records.VARIABLES) < causes
    assert set(records.FAMILIES) == causes
    blameless = {cause for cause, family in records.FAMILIES.items() if family == "none"}
    assert blameless == set(records.BLAMELESS)


def test_trials_of_an_earlier_version_are_read_without_what_they_did_not_have():
    data = to_json(TrialRecord(spec=SPEC, outcome="cured", last_step=131))
    for name in ("findings", "mismatch_tensor"):
        del data[name]
    del data["spec"]["instruments"]
    found = from_json(TrialRecord, data)
    assert found.spec.key == SPEC.key
    assert (found.findings, found.spec.instruments) == ({}, ())


def test_the_nouns_import_nothing_heavy():
    code = (
        "import sys, stabexp.records; heavy = {'torch', 'mlflow', 'optuna', 'pandas', 'pydantic'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    root = str(Path(records.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": root},
    )
    assert done.stdout.strip() == "[]"
