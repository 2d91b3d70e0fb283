"""What a bisect says it knows, and expects to cost, at each question: on scripted worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import bisector_of
from bisection.scripted_runs import (
    BURSTS,
    EATEN,
    HALF,
    LOST,
    LOWER_RATE,
    NO_WARMUP,
    RISING,
    SUDDEN,
    TINY,
    WILD,
)
from bisection.scripted_world import World

from stabexp.bisection.decision_tree import TREE
from stabexp.bisection.outlook import COUNTED, Cost, Standing
from stabexp.records import Verdict

WORLDS = [
    pytest.param(World(doses=LOWER_RATE), id="rate"),
    pytest.param(World(doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP), id="warmup"),
    pytest.param(World(doses=LOWER_RATE | {"clip_norm": "dccccs"}, records=BURSTS), id="clip"),
    pytest.param(World(doses={"precision": "cc"} | LOWER_RATE, setup=HALF), id="precision"),
    pytest.param(World(doses=LOWER_RATE | {"batch_size": "dcc"}, setup=TINY), id="batch size"),
    pytest.param(World(doses=LOWER_RATE, records=RISING), id="schedule"),
    pytest.param(World(doses=LOWER_RATE, records=LOST), id="optimizer state"),
    pytest.param(World(doses=LOWER_RATE, records=WILD), id="initialisation"),
    pytest.param(World(doses=LOWER_RATE, records=EATEN), id="weight decay"),
    pytest.param(World(doses={}), id="nothing cures"),
    pytest.param(World(doses=LOWER_RATE, crash=SUDDEN), id="sudden"),
]


def told(world: World, **wishes: object) -> tuple[list[Standing], Verdict]:
    bisector = bisector_of(world, **wishes)
    heard: list[Standing] = []
    bisector.runner.progress = replace(bisector.runner.progress, standing=heard.append)
    return heard, bisector.bisect()


@pytest.mark.parametrize("world", WORLDS)
def test_the_cause_is_possible_and_not_ruled_out_at_every_question_up_to_it(world):
    heard, verdict = told(world)
    asked = [evidence.node for evidence in verdict.path if evidence.node in TREE]
    named = TREE[asked[-1]].yes.removeprefix("= ")
    for standing in heard:
        if verdict.cause == "inconclusive":
            continue
        assert {named, verdict.cause} & set(standing.possible), standing.node
        assert verdict.cause not in standing.ruled_out


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_ruled_out_is_no_longer_possible(world):
    heard, _ = told(world)
    assert heard
    for standing in heard:
        assert not set(standing.ruled_out) & set(standing.possible)


@pytest.mark.parametrize("world", WORLDS)
def test_at_every_question_something_is_left_to_do(world):
    for standing in told(world)[0]:
        assert standing.now.replays > 0
        assert standing.now.steps > 0
        assert standing.later.replays >= 0
        assert standing.now.watched <= standing.now.steps


def test_the_first_question_says_where_the_crash_is_and_where_replays_start():
    world = World(doses=LOWER_RATE)
    first = told(world)[0][0]
    crash = world.crash
    assert (first.node, first.good_step) == ("control", world.good)
    assert (first.onset, first.detected) == (crash.onset, crash.detected)
    assert first.ruled_out == ()
    assert first.now == Cost(
        replays=1.0, steps=crash.detected + 1 - world.good, watched=crash.detected + 1 - world.good
    )


def test_a_cure_is_told_with_its_dose_and_the_proof_by_what_it_replays():
    heard, verdict = told(World(doses=LOWER_RATE))
    last = heard[-1]
    assert last.node == "proof"
    assert last.possible == (verdict.cause,) == ("learning_rate",)
    assert last.cures == ("learning_rate 0.35",)
    assert last.now.replays == 2
    assert last.later == Cost()


def test_a_half_precision_run_may_be_its_format_and_a_full_one_not():
    assert "precision" in told(World(doses=LOWER_RATE, setup=HALF))[0][0].possible
    assert "precision" not in told(World(doses=LOWER_RATE))[0][0].possible


def test_a_thorough_bisect_costs_more():
    world = World(doses=LOWER_RATE)
    plain, thorough = told(world)[0][-1], told(world, thorough=True)[0][-1]
    assert plain.now == thorough.now
    assert thorough.later.replays > plain.later.replays


def test_a_budget_says_how_many_steps_it_leaves():
    left = [standing.budget_steps for standing in told(World(doses=LOWER_RATE), budget=1000)[0]]
    assert left[0] == 1000
    assert left == sorted(left, reverse=True)
    assert left[-1] < 1000
    assert told(World(doses=LOWER_RATE))[0][0].budget_steps is None


def test_every_question_that_makes_replays_was_counted():
    asked = {name for name, node in TREE.items() if node.needs.__name__ != "never"}
    assert asked | {"proof"} == set(COUNTED)
