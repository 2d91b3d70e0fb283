"""A whole bisect of scripted worlds: which cause is named, and which replays that takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import asked, bisect, bisector_of, judged, nodes, roles
from bisection.scripted_facts import location, rule
from bisection.scripted_runs import (
    BURSTS,
    EATEN,
    FLAT,
    HALF,
    HEART,
    LOST,
    LOWER_RATE,
    NO_WARMUP,
    NOISY,
    OVERFLOW,
    RISING,
    SUDDEN,
    TINY,
    WILD,
)
from bisection.scripted_world import SETUP, World, divergence

from stabexp.bisection.facts import NOTHING

TESTED = rule(cure={"variable": "gradient_scale", "dose": 0.25})
ONE = frozenset({80})


@pytest.mark.parametrize(
    ("world", "cause", "fix"),
    [
        pytest.param(World(doses=LOWER_RATE), "learning_rate", {"optimizer.lr": 0.035}, id="rate"),
        pytest.param(
            World(doses=LOWER_RATE | {"clip_norm": "dddccs"}),
            "learning_rate",
            {"optimizer.lr": 0.035},
            id="clipping would hide it, but nothing bursts",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP),
            "warmup",
            {"schedule.warmup_steps": 10},
            id="warmup, masked by the rate",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"warmup": "ccc"}),
            "learning_rate",
            {"optimizer.lr": 0.035},
            id="a longer ramp would hide it, but there is one already",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"clip_norm": "dccccs"}, records=BURSTS),
            "clip_norm",
            {"clip": 2.0},
            id="bursts, masked by the rate",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE | {"clip_norm": "dccccs", "warmup": "ddcc"},
                records=BURSTS,
                setup=NO_WARMUP,
            ),
            "warmup",
            {"schedule.warmup_steps": 50},
            id="bursts in a run without warmup that a ramp alone cures",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"precision": "cc"}, setup=HALF, metrics=OVERFLOW),
            "precision",
            {"precision": "bf16"},
            id="overflow, masked by the rate",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"precision": "cc"}, setup=HALF),
            "learning_rate",
            {"optimizer.lr": 0.035},
            id="a wider format cures but no number was seen lost",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"batch_size": "dcc"}, setup=TINY, metrics=NOISY),
            "batch_size",
            {"batch.size": 4},
            id="tiny batch whose gradient is mostly noise",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"batch_size": "dcc"}, setup=TINY),
            "learning_rate",
            {"optimizer.lr": 0.035},
            id="tiny batch whose noise was not measured",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"batch_size": "ccc"}),
            "learning_rate",
            {"optimizer.lr": 0.035},
            id="a larger batch would hide it, but the batch is not small",
        ),
    ],
)
def test_a_setting_is_named_fixed_and_told_from_what_masks_it(world, cause, fix):
    verdict, _ = judged(world)
    assert verdict.cause == cause, verdict.summary
    assert verdict.fix == (pytest.approx(fix) if cause != "precision" else fix)
    assert verdict.fix_proved
    assert verdict.confidence > 0.7
    assert (nodes(verdict)["reversal"], nodes(verdict)["proof"]) == ("yes", "yes")


@pytest.mark.parametrize(
    ("world", "cause", "made"),
    [
        pytest.param(
            World(doses=LOWER_RATE, tests={"hold_rate": "c"}, records=RISING),
            "schedule",
            ["hold_rate"],
            id="a schedule that jumps",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"optimizer_state": "c"}, records=LOST),
            "optimizer_state",
            ["optimizer_state"],
            id="a state that was lost",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE,
                tests={"init_scale 0.05": "c"},
                records=WILD,
                setup=replace(SETUP, trivial_loss=2.3),
            ),
            "initialisation",
            ["usual_init", "init_scale", "init_scale"],
            id="weights that start wild, the stronger scale cures",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE,
                tests={"usual_init": "c", "init_scale": "c"},
                records=WILD,
                setup=replace(SETUP, trivial_loss=2.3),
            ),
            "initialisation",
            ["usual_init"],
            id="one weight that starts too wide",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE,
                tests={"weight_decay": "c"},
                records=EATEN,
                setup=replace(SETUP, weight_decay=0.1),
            ),
            "weight_decay",
            ["weight_decay"],
            id="weights that are eaten",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"safe_operation": "c"}, locate=location()),
            "implementation",
            ["safe_operation"],
            id="an operation at the edge of its domain",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"safe_operation": "c"}, locate=location(module="")),
            "loss_function",
            ["safe_operation"],
            id="an operation of the loss",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"adam_eps": "c"}, locate=location(phase="optimizer")),
            "implementation",
            ["adam_eps"],
            id="a division in the update",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE, tests={"replace_samples": "c"}, locate=location(reason="overflow")
            ),
            "data",
            ["replace_samples"],
            id="an overflow in the rows of one sample",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"gradient_scale": "c"}, rules=[TESTED]),
            "implementation",
            ["gradient_scale"],
            id="a broken rule that a replay can prove",
        ),
        pytest.param(
            World(doses=LOWER_RATE, rules=[rule()]), "implementation", [], id="one it cannot"
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"replace_samples": "c"}, locate=location(phase="input")),
            "data",
            ["replace_samples"],
            id="a NaN in the input of one sample",
        ),
        pytest.param(
            World(doses=LOWER_RATE, locate=location(phase="input", sample_ids=[])),
            "data",
            [],
            id="a NaN in every input",
        ),
        pytest.param(
            World(doses=LOWER_RATE, records=HEART), "overfitting", [], id="learning by heart"
        ),
        pytest.param(
            World(doses=LOWER_RATE, crash=SUDDEN, culprits=ONE), "data", [], id="one broken sample"
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="dc", culprits=ONE),
            "data",
            [],
            id="one broken sample that another order takes away too",
        ),
        pytest.param(
            World(doses={"learning_rate": "dddsssss"}, records=FLAT),
            "not_learning",
            [],
            id="nothing learns, nor did the run",
        ),
        pytest.param(
            World(pairs={"precision + learning_rate": "c"}, setup=HALF),
            "joint",
            [],
            id="two at once",
        ),
    ],
)
def test_a_mechanism_is_named_before_any_setting_that_hides_it(world, cause, made):
    verdict, bisector = judged(world)
    assert verdict.cause == cause, verdict.summary
    assert [name for name in asked(bisector, "test") if name != "learning_rate"] == made
    assert "reversal" not in roles(bisector)
    if cause not in {"joint", "not_learning"}:
        assert "learning_rate" not in asked(bisector, "dose")


COMPILED = World(
    doses=LOWER_RATE,
    tests={"eager": "c"},
    controls={30: {"mismatch": 33, "mismatch_field": "loss"}},
    unwatched={"mismatch": None},
)


def test_code_that_takes_another_course_when_watched_is_run_as_it_is_written():
    verdict, bisector = judged(COMPILED)
    assert verdict.cause == "implementation"
    assert verdict.culprit is not None
    assert verdict.culprit.kind == "compiled_code_differs"
    assert asked(bisector, "test") == ["eager"]
    watched, bare = [r.spec for r in bisector.runner.records if r.spec.role == "control"]
    assert watched.instruments
    assert not bare.instruments


def test_code_that_takes_another_course_when_watched_need_not_be_the_cause():
    verdict, _ = judged(replace(COMPILED, tests={}))
    assert verdict.cause == "learning_rate"
    assert nodes(verdict)["operation"] == "not tried", "no operation of this course was watched"
    assert verdict.confidence == 0.75
    not_even_bare = replace(COMPILED, unwatched={})
    assert judged(not_even_bare)[0].cause == "not_reproduced"


def test_a_run_on_a_plateau_is_explained_by_rules_that_throw_nothing_over():
    plateau = replace(SUDDEN, pattern="plateau")
    world = World(doses=LOWER_RATE, rules=[rule("double_softmax")])
    assert judged(world)[0].cause == "learning_rate"
    assert judged(replace(world, crash=plateau))[0].cause == "implementation"


def test_operations_of_one_formula_are_kept_safe_together():
    first, second = "log@train.py:31", "div@train.py:33"
    world = World(
        doses=LOWER_RATE,
        tests={f"safe_operation {first},{second}": "c"},
        locate=location(),
        kept_safe={first: location(operation="div", source="train.py:33")},
    )
    verdict, bisector = judged(world)
    assert verdict.cause == "implementation"
    tests = [r.spec for r in bisector.runner.records if r.spec.role == "test"]
    assert [spec.dose for spec in tests] == [first, f"{first},{second}"]
    assert {spec.instruments for spec in tests} == {("locate",)}


@pytest.mark.parametrize(
    ("world", "first"),
    [
        pytest.param(
            World(doses=LOWER_RATE, tests={"hold_rate": "d"}, records=RISING),
            "hold_rate",
            id="schedule",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"optimizer_state": "s"}, records=LOST),
            "optimizer_state",
            id="optimizer state",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"safe_operation": "d"}, locate=location()),
            "safe_operation",
            id="operation",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"gradient_scale": "l"}, rules=[TESTED]),
            "gradient_scale",
            id="rule",
        ),
    ],
)
def test_a_suspicion_that_does_not_cure_is_dropped_and_the_walk_goes_on(world, first):
    verdict, bisector = judged(world)
    assert asked(bisector, "test") == [first]
    assert verdict.cause == "learning_rate"
    assert verdict.culprit is None


def test_a_lost_number_is_not_looked_for_in_the_data():
    world = World(doses={"precision": "cc"}, setup=HALF, metrics=OVERFLOW, crash=SUDDEN)
    verdict, bisector = judged(world)
    assert verdict.cause == "precision"
    assert not {"data", "scan"} & set(roles(bisector))


def test_the_fix_of_an_own_training_loop_is_an_intervention():
    verdict = bisect(World(doses=LOWER_RATE, setup=replace(SETUP, lr=None)), own_loop=True)
    assert verdict.fix == {"interventions.learning_rate": 0.35}
    assert verdict.next_command == "stabexp run exp.yaml -o interventions.learning_rate=0.35"
    assert verdict.summary.startswith("The learning rate is too high")


@pytest.mark.parametrize(
    ("world", "cause"),
    [
        (World(), "inconclusive"),
        (World(rules=[rule("double_softmax")]), "implementation"),
        (World(records=HEART), "overfitting"),
        (World(controls={30: {"mismatch": 33, "mismatch_field": "loss"}}), "not_reproduced"),
    ],
)
def test_a_run_that_did_not_diverge_is_watched_and_nothing_is_changed(world, cause):
    nothing = replace(divergence(), detector=NOTHING)
    world = replace(world, crash=nothing)
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    assert verdict.cause == cause
    assert set(roles(bisector)) == {"control"}
    assert verdict.fix == {}
