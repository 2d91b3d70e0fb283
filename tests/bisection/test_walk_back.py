"""When nothing cures from the last good checkpoint: the point of no return, and what is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import assert_well_formed, bisector_of
from bisection.scripted_facts import rule
from bisection.scripted_runs import BURSTS, LOWER_RATE, SUDDEN
from bisection.scripted_world import SETUP, World, step_records

STABLE = {"divergence": None, "last_step": 66}
MANY = (0, 5, 10, 15, 20, 25, 30)


def judged(world, **options):
    bisector = bisector_of(world, **options)
    verdict = bisector.bisect()
    assert_well_formed(verdict, bisector)
    return verdict, bisector


def damaged_after(step, table=LOWER_RATE, starts=MANY):
    """Return checkpoints up to a step, from which the cures of the table work."""
    return {start: (table if start <= step else {}) for start in starts if start < 30}


@pytest.mark.parametrize("last", [0, 5, 10, 15, 20, 25])
def test_everything_is_asked_again_from_the_newest_checkpoint_where_a_lower_rate_works(last):
    world = World(earlier=damaged_after(last), starts=MANY)
    verdict, bisector = judged(world)
    assert verdict.cause == "learning_rate"
    assert verdict.point_of_no_return == verdict.good_step == last
    assert any(f"from step {last}" in note for note in bisector.runner.notes)
    starts = {r.spec.from_step for r in bisector.runner.records if r.spec.role == "placebo"}
    assert starts == {30, last}
    tried = [r for r in bisector.runner.records if r.spec.role == "test"]
    assert len(tried) <= 4, "six checkpoints are halved"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        pytest.param({"earlier_placebos": {10: "cd"}}, "marginal", id="a placebo cures from there"),
        pytest.param({"earlier_placebos": {10: "dc"}}, "marginal", id="another order does"),
        pytest.param({"controls": {10: STABLE}}, "not_reproduced", id="no crash from there"),
        pytest.param(
            {"controls": {10: {"mismatch": 12, "mismatch_field": "loss"}}},
            "not_reproduced",
            id="not equal from there",
        ),
    ],
)
def test_a_cure_from_an_earlier_checkpoint_needs_a_control_and_placebos_from_there(change, cause):
    world = World(earlier=damaged_after(10), starts=MANY, **change)
    assert judged(world)[0].cause == cause


def test_when_a_lower_rate_works_from_nowhere_nothing_is_blamed():
    verdict, bisector = judged(World(starts=MANY))
    assert verdict.cause == "inconclusive"
    assert verdict.point_of_no_return is None
    assert {r.spec.from_step for r in bisector.runner.records if r.spec.role == "control"} == {30}


def test_with_no_earlier_checkpoint_there_is_no_walking_back():
    verdict, bisector = judged(World(starts=(30,), earlier=damaged_after(10)))
    assert verdict.cause == "inconclusive"
    assert {r.spec.from_step for r in bisector.runner.records} == {30}


def test_a_checkpoint_that_cannot_be_judged_is_left_out():
    table = damaged_after(20) | {25: {"learning_rate": "iiiiiiii"}}
    verdict, _ = judged(World(earlier=table, starts=MANY))
    assert verdict.point_of_no_return == 20


def test_a_rate_that_works_from_there_as_everything_does_is_not_blamed():
    earlier = damaged_after(10, LOWER_RATE | {"clip_norm": "dccccs"})
    verdict, bisector = judged(World(earlier=earlier, starts=MANY, records=BURSTS))
    assert verdict.cause == "clip_norm"
    assert verdict.point_of_no_return == 10
    cure = bisector.facts.ladder("clip_norm").cure
    assert cure is not None
    known = {r.spec.key: r.spec.from_step for r in bisector.runner.records}
    assert known[cure.trial] == 10


def test_samples_are_asked_again_from_there():
    verdict, bisector = judged(World(earlier=damaged_after(10), starts=MANY, crash=SUDDEN))
    assert verdict.cause == "learning_rate"
    scans = {r.spec.from_step for r in bisector.runner.records if r.spec.role == "scan"}
    assert scans == {30, 10}


HELD = LOWER_RATE | {"hold_rate": "c"}
RISING = [replace(r, lr=0.3 if r.step >= 36 else 0.1) for r in step_records()]
KEPT = LOWER_RATE | {"gradient_scale": "c"}
TESTED = rule(cure={"variable": "gradient_scale", "dose": 0.25})


@pytest.mark.parametrize(
    ("world", "cause"),
    [
        pytest.param(
            World(good=38, starts=(0, 20, 38), earlier={0: HELD, 20: HELD}, records=RISING),
            "schedule",
            id="a schedule that jumped before the last good checkpoint",
        ),
        pytest.param(
            World(earlier={0: KEPT, 20: KEPT}, starts=(0, 20, 30), rules=[TESTED]),
            "implementation",
            id="a rule whose breach had done its damage",
        ),
    ],
)
def test_mechanisms_are_asked_again_from_there(world, cause):
    assert judged(world)[0].cause == cause


def test_the_budget_ends_walking_back_too():
    world = World(earlier=damaged_after(10), starts=MANY)
    _, whole = judged(world)
    for budget in range(0, whole.runner.replayed_steps, 90):
        verdict, _ = judged(world, budget=budget)
        assert verdict.cause in {"learning_rate", "inconclusive"}
        assert verdict.fix_proved or verdict.confidence <= 0.75


def test_a_run_that_crashes_from_its_first_checkpoint_is_not_walked_back():
    setup = replace(SETUP, warmup_steps=0)
    verdict, bisector = judged(World(good=0, setup=setup))
    assert verdict.cause == "inconclusive"
    assert "test" not in [r.spec.role for r in bisector.runner.records]
