"""The way through the tree: which question comes when, where it ends, and where it waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_facts import (
    CLIP,
    FAILED,
    LARGER,
    RAMP,
    RATE,
    WIDER,
    control,
    cut_short,
    facts,
    found,
    ladder,
    location,
    placebos,
    rule,
    seen,
    shown,
)
from bisection.scripted_runs import BURSTS, EATEN, FLAT, HEART, LOST, RISING, SUDDEN, WILD
from bisection.scripted_world import GOOD, divergence

from stabexp.bisection.decision_tree import SILENT_TREE, TREE, walk
from stabexp.bisection.facts import NOTHING, DataFacts

ORDER = [
    "control",
    "overfitting",
    "rules",
    "operation",
    "placebo",
    "precision",
    "data",
    "order",
    "schedule",
    "optimizer_state",
    "initialisation",
    "weight_decay",
    "batch_size",
    "clip_norm",
    "warmup",
    "learning_rate",
    "not_learning",
    "joint",
]
EVERY = frozenset(ORDER)
NO_RAMP = {"warmup_steps": 0}
BAD = DataFacts(verdict="bad_data", why="without it", samples=(80,), cure="abc")
STALLED = ladder("learning_rate", "dss", (0.5, 0.1, 0.01))
PAIR = (shown("c", "precision fp32", "learning_rate 0.5"),)


def off(name, *, letter="c"):
    return {name: shown(letter, f"{name} off", role="test")}


def test_the_order_of_the_questions():
    assert list(TREE) == ORDER


@pytest.mark.parametrize("tree", [TREE, SILENT_TREE], ids=["diverged", "silent"])
def test_every_way_out_leads_to_a_later_question_or_to_a_cause(tree):
    names = list(tree)
    for place, node in enumerate(tree.values()):
        for target in (node.yes, node.no, node.unknown):
            assert target.startswith("= ") or names.index(target) > place
        assert node.unknown == "= inconclusive"
        assert node.question.endswith("?")


ENDS = [
    (facts(controls=(control(mismatch=3),)), "not_reproduced", "control"),
    (facts(controls=()), "inconclusive", "control"),
    (facts(records=HEART), "overfitting", "overfitting"),
    (facts(placebos=placebos("cd")), "marginal", "placebo"),
    (facts(controls=found(rules=[rule()])), "implementation", "rules"),
    (facts(controls=found(rules=[rule("buffer_not_finite")])), "inconclusive", "joint"),
    (
        facts(
            controls=found(rules=[rule("input_range", cure={"variable": "x", "dose": 1})]),
            tests=off("rule input_range"),
        ),
        "data",
        "rules",
    ),
    (
        facts(controls=found(locate=location()), tests=off("operation")),
        "implementation",
        "operation",
    ),
    (
        facts(controls=found(locate=location(module="")), tests=off("operation")),
        "loss_function",
        "operation",
    ),
    (facts(controls=found(locate=location(phase="input"))), "data", "operation"),
    (facts(controls=found(locate=location())), "inconclusive", "operation"),
    (
        facts(WIDER, RATE, setup={"precision": "fp16"}, controls=seen(skipped_share=0.5)),
        "precision",
        "precision",
    ),
    (facts(RATE, divergence=SUDDEN, data=BAD), "data", "data"),
    (facts(RATE, data=replace(BAD, verdict="undecided")), "inconclusive", "data"),
    (facts(RATE, placebos=placebos("dc")), "marginal", "order"),
    (facts(RATE, data=BAD, placebos=placebos("dc")), "data", "data"),
    (facts(RATE, records=RISING, tests=off("schedule")), "schedule", "schedule"),
    (
        facts(RATE, records=LOST, tests=off("optimizer_state")),
        "optimizer_state",
        "optimizer_state",
    ),
    (
        facts(RATE, records=WILD, setup={"trivial_loss": 2.3}, tests=off("initialisation")),
        "initialisation",
        "initialisation",
    ),
    (
        facts(RATE, records=EATEN, setup={"weight_decay": 0.1}, tests=off("weight_decay")),
        "weight_decay",
        "weight_decay",
    ),
    (
        facts(LARGER, RATE, setup={"batch_size": 1}, controls=seen(early_grad_norm=2.0)),
        "batch_size",
        "batch_size",
    ),
    (facts(CLIP, RATE, records=BURSTS), "clip_norm", "clip_norm"),
    (facts(RAMP, RATE, setup=NO_RAMP), "warmup", "warmup"),
    (facts(RATE, cut_short("warmup"), setup=NO_RAMP), "inconclusive", "warmup"),
    (facts(RATE), "learning_rate", "learning_rate"),
    (facts(cut_short("learning_rate")), "inconclusive", "learning_rate"),
    (facts(STALLED, records=FLAT), "not_learning", "not_learning"),
    (facts(STALLED), "inconclusive", "joint"),
    (facts(FAILED["learning_rate"], FAILED["precision"], pairs=PAIR), "joint", "joint"),
    (facts(LARGER), "inconclusive", "joint"),
    (facts(), "inconclusive", "joint"),
]


@pytest.mark.parametrize(("given", "cause", "node"), ENDS)
def test_the_walk_ends_at_a_cause_and_says_how_it_came_there(given, cause, node):
    found = walk(replace(given, gathered=EVERY))
    assert (found.cause, found.path[-1].node, found.waiting) == (cause, node, "")
    assert [step.node for step in found.path] == ORDER[: ORDER.index(node) + 1]
    assert [step.decisive for step in found.path] == [False] * (len(found.path) - 1) + [True]
    assert found.answer is not None


def test_every_question_is_the_end_of_a_walk_and_every_cause_the_end_of_one():
    assert {node for _, _, node in ENDS} == set(ORDER)
    ends = {node.yes.removeprefix("= ") for node in TREE.values() if node.yes.startswith("= ")}
    assert ends <= {cause for _, cause, _ in ENDS}


NEEDS = {
    "control": [(facts(), True)],
    "overfitting": [(facts(records=HEART), False)],
    "rules": [
        (facts(), False),
        (facts(controls=found(rules=[rule()])), False),
        (facts(controls=found(rules=[rule(cure={"variable": "x", "dose": 1})])), True),
    ],
    "operation": [
        (facts(), False),
        (facts(controls=found(locate=location())), True),
        (facts(controls=found(locate=location(phase="input"))), True),
        (facts(controls=found(locate=location(phase="input", sample_ids=[]))), False),
    ],
    "placebo": [(facts(), True)],
    "precision": [(facts(), False), (facts(setup={"precision": "bf16"}), True)],
    "data": [(facts(), False), (facts(divergence=SUDDEN), True)],
    "order": [(facts(placebos=placebos("dc")), False)],
    "schedule": [(facts(), False), (facts(records=RISING), True)],
    "optimizer_state": [(facts(), False), (facts(records=LOST), True)],
    "initialisation": [
        (facts(records=WILD), False),
        (facts(records=WILD, setup={"trivial_loss": 2.3}), True),
    ],
    "weight_decay": [
        (facts(records=EATEN), False),
        (facts(records=EATEN, setup={"weight_decay": 0.1}), True),
    ],
    "batch_size": [(facts(), False), (facts(setup={"batch_size": 8}), True)],
    "clip_norm": [
        (facts(), False),
        (facts(records=BURSTS), True),
        (facts(records=BURSTS, setup={"clip_norm": 1.0}), False),
        (
            facts(
                setup=NO_RAMP,
                divergence=divergence(11, 5),
                controls=(control(divergence=divergence(11, 5)),),
            ),
            True,
        ),
    ],
    "warmup": [
        (facts(), False),
        (facts(setup=NO_RAMP), True),
        (facts(setup=NO_RAMP, divergence=divergence(56, 50)), False),
    ],
    "learning_rate": [(facts(), True)],
    "not_learning": [(facts(), False)],
    "joint": [(facts(), True)],
}


@pytest.mark.parametrize(
    ("node", "given", "needed"),
    [(node, *case) for node, cases in NEEDS.items() for case in cases],
)
def test_replays_are_made_for_a_question_only_where_its_answer_could_be_yes(node, given, needed):
    assert TREE[node].needs(given) == needed
    before = frozenset(ORDER[: ORDER.index(node)])
    asked = walk(replace(given, gathered=before))
    assert (asked.waiting == node) == needed
    if needed:
        assert [step.node for step in asked.path] == ORDER[: ORDER.index(node)]
        assert not any(step.decisive for step in asked.path)


def test_the_needs_of_every_question_are_tried():
    assert list(NEEDS) == ORDER


def test_a_fault_that_does_not_explain_all_answers_no_and_the_walk_goes_on():
    held = facts(RATE, records=RISING, tests=off("schedule"), gathered=EVERY)
    assert walk(held).cause == "schedule"
    again = shown("d", "hold_rate on", role="proof", start=GOOD, last=90)
    walked = walk(replace(held, disproved={"schedule": again}))
    assert walked.cause == "learning_rate"
    (step,) = [step for step in walked.path if step.node == "schedule"]
    assert step.answer == "no"
    assert step.detail.endswith("but with that taken away the run crashed again at step 46")
    assert step.trials[-1] == again.spec.key
    never_asked = walk(replace(held, disproved={"weight_decay": again}))
    assert never_asked.cause == "schedule"


SILENT = replace(divergence(), detector=NOTHING)


@pytest.mark.parametrize(
    ("given", "cause", "node"),
    [
        (facts(), "inconclusive", "overfitting"),
        (facts(controls=found(rules=[rule("double_softmax")])), "implementation", "rules"),
        (facts(controls=found(rules=[rule(strength="suspicious")])), "implementation", "rules"),
        (facts(records=HEART), "overfitting", "overfitting"),
        (facts(controls=(control(mismatch=3),)), "not_reproduced", "control"),
    ],
)
def test_a_run_that_did_not_diverge_is_asked_for_broken_rules_only(given, cause, node):
    silent = replace(given, divergence=SILENT)
    assert walk(silent, SILENT_TREE).waiting == "control"
    found = walk(replace(silent, gathered=frozenset({"control"})), SILENT_TREE)
    assert (found.cause, found.path[-1].node, found.waiting) == (cause, node, "")
