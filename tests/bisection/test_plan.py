"""Where replays start and end, and what the fix sets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_world import DETECTED, GOOD, SETUP, STEPS, divergence
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.ladder import Ladder
from stabexp.bisection.plan import (
    CHECKED_STEPS,
    CONTROL_GRACE,
    PLACEBOS,
    WATCHED,
    Plan,
    patch_for,
)
from stabexp.records import VARIABLES, Change

PLAN = Plan(divergence=divergence(), good_step=GOOD, steps=STEPS)
RATE = Ladder(variable="learning_rate", doses=(0.7, 0.5, 0.1), original=1.0)
RAMP = Ladder(variable="warmup", doses=(10, 100), original=0)


@pytest.mark.parametrize(
    ("from_step", "until"),
    [
        pytest.param(GOOD, GOOD + 6 * (DETECTED - GOOD + 1), id="six times the distance"),
        pytest.param(DETECTED - 1, DETECTED - 1 + 2 + 40, id="at least forty steps more"),
        pytest.param(0, 6 * (DETECTED + 1), id="from scratch"),
    ],
)
def test_a_cure_is_believed_after(from_step, until):
    assert PLAN.until(from_step) == until


@given(st.integers(0, 300), st.integers(0, 60), st.integers(1, 200), st.integers(0, 5))
def test_no_replay_is_empty_or_goes_past_the_runs_own_end(good, distance, left, index):
    detected = good + distance
    plan = Plan(divergence=divergence(detected), good_step=good, steps=detected + left)
    ladder = replace(RATE, doses=(0.9, 0.8, 0.7, 0.5, 0.3, 0.1))
    cure = plan.dose(ladder, index, from_step=good)
    warm = plan.dose(replace(RAMP, doses=(1, 2, 3, 5, 9, 50)), index, from_step=good)
    back, on = plan.reversal(cure), plan.onward(cure)
    fixed = plan.from_scratch({"optimizer.lr": 1.0}, cure=cure)
    test = plan.changed("test", cure.changes, from_step=good, reason="")
    specs = [plan.control(good), plan.control(0), *plan.placebos(good), cure, warm, fixed, test]
    for spec in [*specs, *filter(None, (back, on))]:
        assert 0 <= spec.from_step < spec.until_step <= plan.steps
        if spec not in (back, on):
            assert spec.until_step > detected or spec.until_step == plan.steps
    assert test.until_step == cure.until_step
    assert cure.save_at == tuple(sorted({cure.until_step, min(detected + 1, cure.until_step)}))
    if back is not None:
        assert back.from_step == detected + 1 in cure.save_at
        assert back.from_trial == cure.key
        assert back.until_step - back.from_step > distance, "as long as the crash took"
    assert (on is None) == (cure.until_step == plan.steps)
    if on is not None:
        assert on.from_step == cure.until_step
        assert (on.from_trial, on.changes) == (cure.key, cure.changes)
    assert fixed.until_step >= cure.until_step


def test_a_control_may_go_a_little_past_the_crash_before_it_counts_as_stable():
    control = PLAN.control(GOOD)
    assert control.until_step == DETECTED + 1 + CONTROL_GRACE
    assert control.changes == ()
    assert "last good checkpoint" in control.reason
    assert "step 0" in PLAN.control(0).reason


def test_the_control_from_the_last_good_checkpoint_is_watched_and_no_other():
    assert PLAN.control(GOOD).instruments == WATCHED
    assert PLAN.control(0).instruments == ()
    assert set(PLAN.control(GOOD, half=True).instruments) == {*WATCHED, "half_modules"}
    assert Plan(divergence=divergence(), good_step=0, steps=STEPS).control(0).instruments == WATCHED


def test_a_run_that_did_not_diverge_is_replayed_to_its_end_or_as_far_as_watching_is_worth():
    end = STEPS - 1
    plan = Plan(divergence=divergence(end, end), good_step=GOOD, steps=STEPS)
    assert plan.checked(0).until_step == CHECKED_STEPS
    assert plan.checked(end - 2).until_step == STEPS
    assert {plan.checked(step).role for step in (0, GOOD)} == {"control"}


def test_a_trial_keeps_its_end_so_that_a_cure_can_go_on_from_there():
    test = PLAN.changed(
        "test", (Change(variable="weight_decay", dose=0.0),), from_step=GOOD, reason=""
    )
    assert test.save_at == (test.until_step,)
    onward = PLAN.onward(test)
    assert onward is not None
    assert (onward.from_step, onward.until_step) == (test.until_step, PLAN.until(GOOD))
    assert onward.role == "proof"
    assert onward.patch == {}
    assert all(spec.save_at == () for spec in PLAN.placebos(GOOD))
    late = Plan(divergence=divergence(), good_step=GOOD, steps=test.until_step)
    assert late.onward(test) is None


@pytest.mark.parametrize("start", [GOOD, 0])
def test_placebos_run_as_long_as_a_cure_and_change_next_to_nothing(start):
    specs = PLAN.placebos(start)
    assert {spec.changes for spec in specs} == {(change,) for change in PLACEBOS}
    assert {(spec.from_step, spec.until_step) for spec in specs} == {(start, PLAN.until(start))}
    assert len({spec.key for spec in specs}) == len(specs)


def test_a_ramp_starts_from_scratch_and_then_holds_the_full_rate_as_long_as_the_crash_took():
    spec = PLAN.dose(RAMP, 1, from_step=GOOD)
    assert spec.from_step == 0
    assert spec.save_at == (spec.until_step,)
    assert spec.until_step >= 100 + DETECTED + 1
    assert PLAN.reversal(spec) is None
    assert PLAN.from_scratch({}, cure=spec).until_step >= spec.until_step
    # The same replay whichever pass asks for it, so that it is run once.
    assert spec.key == PLAN.dose(RAMP, 1, from_step=0).key


@pytest.mark.parametrize("start", [GOOD, 0])
def test_what_is_only_searched_for_is_followed_half_as_far_as_what_is_believed(start):
    distance = DETECTED - start + 1
    assert PLAN.searched(start) == start + 3 * distance
    assert PLAN.until(start) == start + 6 * distance
    assert PLAN.dose(RATE, 0, from_step=start).until_step == PLAN.searched(start)
    assert PLAN.searched(DETECTED - 1) == DETECTED - 1 + 2 + 25, "at least 25 steps more"


@pytest.mark.parametrize(
    ("detected", "until"),
    [
        pytest.param(46, 3 * 47, id="twice as long as the first took"),
        pytest.param(206, 207 + 100, id="a hundred steps at most"),
    ],
)
def test_what_struck_once_is_waited_for_again(detected, until):
    plan = Plan(divergence=divergence(detected), good_step=detected - 6, steps=1000)
    test = plan.changed(
        "data",
        (Change(variable="replace_samples", dose="80"),),
        from_step=plan.good_step,
        reason="",
    )
    waiting, usual = plan.onward(test, recurring=True), plan.onward(test)
    assert waiting is not None
    assert usual is not None
    assert waiting.until_step == until > usual.until_step


def test_what_is_held_from_a_checkpoint_on_is_proved_from_there():
    test = PLAN.changed(
        "test", (Change(variable="hold_rate", dose="on"),), from_step=GOOD, reason=""
    )
    proof = PLAN.onward(test)
    assert proof is not None
    assert (proof.from_step, proof.from_trial, proof.changes) == (GOOD, "", test.changes)
    assert proof.until_step > test.until_step


def test_clipping_put_off_is_waited_for_longer_than_a_rate_put_back():
    clip = PLAN.dose(Ladder(variable="clip_norm", doses=(2.0,), original=None), 0, from_step=GOOD)
    for cure, until in ((clip, 3 * 47), (PLAN.dose(RATE, 0, from_step=GOOD), 47 + 3 * 17)):
        back = PLAN.reversal(cure)
        assert back is not None
        assert back.until_step == until


def test_a_reversal_is_not_tried_when_the_run_ends_before_it_could_crash():
    short = Plan(divergence=divergence(), good_step=GOOD, steps=DETECTED + 5)
    assert short.reversal(short.dose(RATE, 0, from_step=GOOD)) is None


@pytest.mark.parametrize(
    ("variable", "dose", "patch"),
    [
        ("learning_rate", 0.35, {"optimizer.lr": 0.035}),
        ("warmup", 25, {"schedule.warmup_steps": 25}),
        ("clip_norm", 0.8, {"clip": 0.8}),
        ("precision", "bf16", {"precision": "bf16"}),
        ("batch_size", 4, {"batch.size": 128}),
    ],
)
def test_a_fix_sets_the_key_a_person_would_set(variable, dose, patch):
    assert patch_for(variable, dose, setup=SETUP, own_loop=False) == pytest.approx(patch)


def test_a_larger_batch_is_larger_per_micro_batch_so_accumulation_stays():
    setup = replace(SETUP, batch_size=32, micro_batch=8)
    assert patch_for("batch_size", 4, setup=setup, own_loop=False) == {"batch.size": 32}


@pytest.mark.parametrize("variable", ["learning_rate", "warmup", "batch_size", "precision"])
def test_in_an_own_loop_what_the_file_does_not_hold_is_changed_by_intervention(variable):
    dose = "fp32" if variable == "precision" else 4
    setup = replace(SETUP, lr=None, warmup_steps=0)
    patch = patch_for(variable, dose, setup=setup, own_loop=True)
    assert patch == {f"interventions.{variable}": dose}


def test_a_longer_ramp_takes_the_place_of_the_one_that_the_own_loop_has():
    patch = patch_for("warmup", 50, setup=replace(SETUP, warmup_steps=20), own_loop=True)
    assert patch == {"interventions.warmup": 50, "schedule.warmup_steps": 20}


def test_every_variable_of_a_bisect_has_a_fix():
    doses = {"precision": "fp32"}
    for variable in VARIABLES:
        assert patch_for(variable, doses.get(variable, 2), setup=SETUP, own_loop=False)


def test_what_no_setting_of_the_file_does_is_changed_by_intervention():
    found = patch_for("init_scale", 0.25, setup=SETUP, own_loop=False)
    assert found == {"interventions.init_scale": 0.25}
