"""What a cause must stand before it is named: the fix goes on, or there is more to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import asked, judged, nodes, roles
from bisection.scripted_facts import location, rule
from bisection.scripted_runs import LOWER_RATE, RISING, SUDDEN
from bisection.scripted_world import DETECTED, GOOD, SETUP, World

ONE = frozenset({80})
CLIP = {"clip_norm": "dccccs"}
HELD = {"hold_rate": "c"}
TESTED = rule(cure={"variable": "gradient_scale", "dose": 0.25})


def proofs(bisector):
    return [record.spec for record in bisector.runner.records if record.spec.role == "proof"]


def test_when_the_mildest_dose_fails_in_the_proof_the_next_stronger_one_is_proved():
    verdict, bisector = judged(World(doses=LOWER_RATE, proofs="dc"))
    assert verdict.cause == "learning_rate"
    assert verdict.fix == {"optimizer.lr": 0.025}
    assert verdict.fix_proved
    assert "×0.25 of it trains through" in verdict.summary
    assert roles(bisector).count("proof") == 2


def test_the_proof_goes_on_from_where_the_cure_ended():
    verdict, bisector = judged(World(doses=LOWER_RATE))
    (proof,) = proofs(bisector)
    (cure,) = [r.spec for r in bisector.runner.records if r.spec.key == proof.from_trial]
    assert (proof.from_step, proof.changes, proof.patch) == (cure.until_step, cure.changes, {})
    assert proof.until_step == GOOD + 6 * (DETECTED - GOOD + 1)
    assert verdict.fix_proved


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(doses=LOWER_RATE, good=0), id="every replay began there"),
        pytest.param(
            World(doses={"warmup": "cccc"}, setup=replace(SETUP, warmup_steps=0)),
            id="a ramp begins there",
        ),
    ],
)
def test_a_fix_from_scratch_is_proved_as_its_user_would_run_it(world):
    verdict, bisector = judged(world)
    (proof,) = proofs(bisector)
    assert (proof.from_step, proof.changes, dict(proof.patch)) == (0, (), dict(verdict.fix))
    assert verdict.fix


def test_a_rate_held_is_proved_from_where_it_was_first_held():
    # From a later checkpoint the rate in force there would be held: the one that is too high.
    verdict, bisector = judged(World(tests=HELD, records=RISING))
    (proof,) = proofs(bisector)
    assert (proof.from_step, proof.from_trial, proof.patch) == (GOOD, "", {})
    assert [c.variable for c in proof.changes] == ["hold_rate"]
    assert (verdict.cause, verdict.fix) == ("schedule", {})


def test_a_cure_that_reached_the_runs_own_end_needs_no_proof():
    verdict, bisector = judged(World(doses=LOWER_RATE, setup=replace(SETUP, steps=81)))
    assert proofs(bisector) == []
    assert verdict.fix_proved
    assert (nodes(verdict)["proof"], verdict.path[-1].detail) == (
        "yes",
        "the curing replay reached the run's end",
    )


@pytest.mark.parametrize(
    ("world", "node"),
    [
        pytest.param(World(doses=LOWER_RATE, tests=HELD, records=RISING), "schedule", id="rate"),
        pytest.param(
            World(doses=LOWER_RATE, tests={"safe_operation": "c"}, locate=location()),
            "operation",
            id="operation",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"gradient_scale": "c"}, rules=[TESTED]),
            "rules",
            id="rule",
        ),
    ],
)
def test_a_fault_after_whose_removal_it_crashes_again_does_not_end_the_search(world, node):
    verdict, bisector = judged(replace(world, proofs="dc"))
    assert verdict.cause == "learning_rate"
    (step,) = [step for step in verdict.path if step.node == node]
    assert step.answer == "no"
    assert "but with that taken away the run crashed again at step" in step.detail
    (again,) = [r for r in bisector.runner.records if r.spec.key == step.trials[-1]]
    assert again.spec.role == "proof"
    assert again.divergence is not None
    assert verdict.culprit is None


def test_when_no_other_cause_is_found_what_was_disproved_is_not_named():
    verdict, _ = judged(World(tests=HELD, records=RISING, proofs="d"))
    assert verdict.cause == "inconclusive"
    assert nodes(verdict)["schedule"] == "no"


def test_samples_of_which_others_take_the_place_are_the_tail_that_nothing_clips():
    world = World(doses=LOWER_RATE | CLIP, crash=SUDDEN, culprits=ONE)
    assert judged(world)[0].cause == "data"
    verdict, _ = judged(replace(world, proofs="dc"))
    assert (verdict.cause, verdict.fix) == ("clip_norm", {"clip": 2.0})
    (reversal,) = [step for step in verdict.path if step.node == "reversal"]
    assert reversal.answer == "yes"
    assert "on other samples" in reversal.detail
    (clip,) = [step for step in verdict.path if step.node == "clip_norm"]
    assert "it crashed on others" in clip.detail


def test_where_gradients_are_clipped_samples_that_do_not_stand_are_no_long_tail():
    world = World(
        doses=LOWER_RATE | {"clip_norm": "ccccs"},
        setup=replace(SETUP, clip_norm=3.0),
        crash=SUDDEN,
        culprits=ONE,
        proofs="dc",
    )
    assert judged(world)[0].cause == "learning_rate"


@pytest.mark.parametrize(
    ("clip", "until"),
    [
        pytest.param(None, 3 * (DETECTED + 1), id="nothing clips: twice as long as the first took"),
        pytest.param(3.0, GOOD + 6 * (DETECTED - GOOD + 1), id="clipped: the usual horizon"),
    ],
)
def test_without_the_samples_the_run_goes_on_until_others_would_have_struck(clip, until):
    setup = replace(SETUP, clip_norm=clip)
    verdict, bisector = judged(World(setup=setup, crash=SUDDEN, culprits=ONE))
    assert verdict.cause == "data"
    (proof,) = proofs(bisector)
    assert proof.until_step == until


@pytest.mark.parametrize(
    ("world", "pair"),
    [
        pytest.param(
            World(tests={"gradient_scale": "c"}, rules=[TESTED]),
            "gradient_scale + learning_rate",
            id="a rule",
        ),
        pytest.param(
            World(crash=SUDDEN, culprits=ONE, setup=replace(SETUP, clip_norm=3.0)),
            "replace_samples + learning_rate",
            id="samples",
        ),
    ],
)
def test_a_second_fault_is_looked_for_in_the_second_crash(world, pair):
    world = replace(world, pairs={pair: "c"}, proofs="dc")
    verdict, bisector = judged(world)
    assert verdict.cause == "joint", verdict.summary
    assert pair.replace(" ", "") in asked(bisector, "dose")
    assert "crashed again at step" in verdict.summary
    (together,) = [
        r
        for r in bisector.runner.records
        if len(r.spec.changes) == 2 and r.outcome == "cured" and r.spec.role == "dose"
    ]
    (first, *_) = [r for r in bisector.runner.records if r.spec.role == "proof"]
    assert together.spec.until_step > first.last_step, "past the second crash"
    not_cured, _ = judged(replace(world, pairs={pair: "d"}, proofs="dd"))
    assert not_cured.cause == "inconclusive"


def test_a_cure_whose_loss_only_wanders_further_on_is_named_without_confidence():
    # It has learned already; what counts from there is that it does not crash.
    verdict, _ = judged(World(doses=LOWER_RATE, proofs="ss"))
    assert (verdict.cause, verdict.confidence, verdict.fix_proved) == ("learning_rate", 0.75, False)
    assert nodes(verdict)["proof"] == "not clearly"
