"""Where replays start and end, and what the fix sets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_world import DETECTED, GOOD, SETUP, STEPS, divergence

from stabexp.bisection.ladder import Ladder
from stabexp.bisection.plan import CONTROL_GRACE, PLACEBOS, Plan, patch_for
from stabexp.records import VARIABLES

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
    back = plan.reversal(cure)
    fixed = plan.proof({"optimizer.lr": 1.0}, cure=cure)
    specs = [plan.control(good), plan.control(0), *plan.placebos(good), cure, warm, fixed]
    for spec in [*specs, *([back] if back else [])]:
        assert 0 <= spec.from_step < spec.until_step <= plan.steps
        if spec is not back:
            assert spec.until_step > detected or spec.until_step == plan.steps
    assert (cure.save_at is None) == (cure.until_step <= detected + 1)
    if back is not None:
        assert back.from_step == cure.save_at == detected + 1
        assert back.from_trial == cure.key
        assert back.until_step - back.from_step > distance, "as long as the crash took"
    assert fixed.until_step >= cure.until_step


def test_a_control_may_go_a_little_past_the_crash_before_it_counts_as_stable():
    control = PLAN.control(GOOD)
    assert control.until_step == DETECTED + 1 + CONTROL_GRACE
    assert control.changes == ()
    assert "last good checkpoint" in control.reason
    assert "step 0" in PLAN.control(0).reason


@pytest.mark.parametrize("start", [GOOD, 0])
def test_placebos_run_as_long_as_a_cure_and_change_next_to_nothing(start):
    specs = PLAN.placebos(start)
    assert {spec.changes for spec in specs} == {(change,) for change in PLACEBOS}
    assert {(spec.from_step, spec.until_step) for spec in specs} == {(start, PLAN.until(start))}
    assert len({spec.key for spec in specs}) == len(specs)


def test_a_ramp_starts_from_scratch_and_then_holds_the_full_rate_as_long_as_the_crash_took():
    spec = PLAN.dose(RAMP, 1, from_step=GOOD)
    assert spec.from_step == 0
    assert spec.save_at is None
    assert spec.until_step >= 100 + DETECTED + 1
    assert PLAN.reversal(spec) is None
    assert PLAN.proof({}, cure=spec).until_step >= spec.until_step
    # The same replay whichever pass asks for it, so that it is run once.
    assert spec.key == PLAN.dose(RAMP, 1, from_step=0).key


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


@pytest.mark.parametrize("variable", ["learning_rate", "warmup", "batch_size"])
def test_in_an_own_loop_what_the_file_does_not_hold_is_changed_by_intervention(variable):
    patch = patch_for(variable, 4, setup=replace(SETUP, lr=None), own_loop=True)
    assert patch == {f"interventions.{variable}": 4}


def test_every_variable_of_a_bisect_has_a_fix():
    doses = {"precision": "fp32"}
    for variable in VARIABLES:
        assert patch_for(variable, doses.get(variable, 2), setup=SETUP, own_loop=False)
