"""What a user asks of a bisect besides a verdict: where to start, what to try, how far to go."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import asked, bisect, judged, nodes, roles
from bisection.scripted_facts import location, rule
from bisection.scripted_runs import HALF, LOWER_RATE, NO_WARMUP, OVERFLOW
from bisection.scripted_world import World, divergence

from stabexp.errors import ConfigError
from stabexp.records import VARIABLES

STABLE = {"divergence": None, "last_step": 66}


def test_no_further_trial_runs_after_the_tree_has_ended():
    _, stable = judged(World(doses=LOWER_RATE, controls={30: STABLE}))
    assert set(roles(stable)) == {"control"}
    _, marginal = judged(World(doses=LOWER_RATE, placebos="cd"))
    assert set(roles(marginal)) == {"control", "placebo"}
    _, broken = judged(World(doses=LOWER_RATE, rules=[rule()]))
    assert set(roles(broken)) == {"control"}


def test_rivals_that_cannot_be_the_cause_are_not_replayed():
    _, bisector = judged(World(doses=LOWER_RATE))
    assert set(asked(bisector, "dose")) == {"learning_rate"}
    assert not {"test", "data", "scan"} & set(roles(bisector))
    _, thorough = judged(World(doses=LOWER_RATE | {"clip_norm": "dddccs"}), thorough=True)
    assert set(asked(thorough, "dose")) == set(VARIABLES)


def test_what_else_hides_the_symptom_is_told_when_it_is_asked_for():
    verdict, _ = judged(World(doses=LOWER_RATE | {"clip_norm": "dddccs"}), thorough=True)
    assert verdict.cause == "learning_rate"
    assert {item.variable for item in verdict.ruled_out if item.masker} == {"clip_norm"}


@pytest.mark.parametrize(
    ("variables", "cause"),
    [
        (("learning_rate",), "learning_rate"),
        (("learning_rate", "warmup"), "warmup"),
        (("clip_norm", "batch_size"), "inconclusive"),
    ],
)
def test_variables_left_out_are_neither_tried_nor_ruled_out(variables, cause):
    world = World(doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP)
    verdict, bisector = judged(world, variables=variables)
    assert verdict.cause == cause
    assert set(asked(bisector, "dose")) <= set(variables)
    why = {item.variable: item.why for item in verdict.ruled_out if item.variable not in variables}
    left_out = set(VARIABLES) - set(variables) if cause != "inconclusive" else set()
    assert why == dict.fromkeys(left_out, "not tried: left out by request")


@pytest.mark.parametrize(
    ("good", "starts", "wished", "from_step"),
    [
        pytest.param(30, (0, 10, 30), {}, 30, id="the last good one"),
        pytest.param(30, (0, 10, 30), {"good": 10}, 10, id="the one that was asked for"),
        pytest.param(30, (0, 10, 30), {"skip": ("20-35",)}, 10, id="the last that is not skipped"),
        pytest.param(30, (10, 30), {"skip": ("10",)}, 30, id="skipping another changes nothing"),
    ],
)
def test_replays_start_where_the_user_wants(good, starts, wished, from_step):
    verdict, bisector = judged(World(doses=LOWER_RATE, good=good, starts=starts), **wished)
    assert verdict.good_step == from_step
    assert bisector.runner.records[0].spec.from_step == from_step
    assert verdict.cause == "learning_rate"


def test_a_step_called_bad_is_the_crash_to_explain():
    crash = divergence(43)
    world = World(doses=LOWER_RATE, controls={30: {"divergence": crash, "last_step": 43}})
    verdict, _ = judged(world, bad=43)
    assert verdict.divergence.detected == 43
    assert verdict.cause == "learning_rate"
    with pytest.raises(ConfigError, match="not a recorded step"):
        bisect(world, bad=99)


def test_the_cure_is_repeated_in_further_orders_that_crash_without_it():
    verdict, bisector = judged(World(doses=LOWER_RATE), seeds=2)
    assert nodes(verdict)["repeats"] == "yes"
    assert verdict.confidence > 0.9
    assert asked(bisector, "test") == ["learning_rate+shuffle"] * 2
    fails, _ = judged(World(doses=LOWER_RATE, repeats="d"), seeds=2)
    assert (fails.cause, fails.confidence) == ("learning_rate", 0.75)
    nothing_shown, _ = judged(World(doses=LOWER_RATE, orders="c"), seeds=2)
    assert "repeats" not in nodes(nothing_shown)


def test_the_modules_that_must_stay_in_float32_are_found_when_asked_for():
    modules = {"names": ["stem", "norm", "head"], "near": ["norm"]}
    world = World(
        doses={"precision": "cc"},
        setup=HALF,
        metrics=OVERFLOW,
        half_modules=modules,
        tests={"exact_modules norm": "c"},
    )
    verdict, _ = judged(world, layers=True)
    assert "Only norm must compute in float32" in verdict.summary
    assert "float32" not in judged(world)[0].summary
    assert "Only" not in judged(replace(world, tests={}), layers=True)[0].summary


def test_asking_what_else_hides_the_symptom_takes_nothing_from_what_was_found():
    place = location(phase="optimizer", dtype="float16", reason="division")
    world = World(doses={"precision": "cc"}, setup=HALF, tests={"adam_eps": "c"}, locate=place)
    plain, thorough = judged(world)[0], judged(world, thorough=True)[0]
    assert (plain.cause, thorough.cause) == ("precision", "precision")
    assert thorough.summary == plain.summary
    assert thorough.confidence == plain.confidence
