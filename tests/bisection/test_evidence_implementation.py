"""Broken rules of the training step, and the operation that made the first NaN."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bisection.scripted_facts import control, facts, found, location, rule, shown
from bisection.scripted_runs import RUN
from bisection.scripted_world import divergence

from stabexp.bisection.evidence import implementation
from stabexp.records import Cause

TESTED = rule(cure={"variable": "gradient_scale", "dose": 0.25})


def with_rules(*rules, **fields):
    return facts(controls=found(rules=list(rules)), **fields)


def kept(letter, name="no_zero_grad"):
    return {f"rule {name}": shown(letter, "gradient_scale 0.25", role="test")}


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        ("yes", with_rules(rule()), "no zero grad at train.py:12: gradients of 2 updates add up"),
        ("yes", with_rules(TESTED, tests=kept("c")), "kept the run trains through"),
        ("no", with_rules(TESTED, tests=kept("d")), "keeping it diverged"),
        ("no", with_rules(TESTED, tests=kept("s")), "keeping it stalled"),
        ("no", with_rules(TESTED, tests=kept("i")), "keeping it inconclusive"),
        ("no", with_rules(TESTED), "seen, but no explanation of the crash: no_zero_grad"),
        ("no", with_rules(rule(strength="suspicious")), "no explanation of the crash"),
        ("yes", with_rules({**TESTED, "strength": "suspicious"}, tests=kept("c")), "kept"),
        ("no", with_rules(rule("double_softmax")), "no explanation of the crash: double_softmax"),
        ("no", facts(), "none is broken"),
        ("not tried", facts(controls=()), "none is broken"),
        (
            "yes",
            with_rules(TESTED, rule("unscaled_twice"), tests=kept("d")),
            "unscaled twice at train.py:12",
        ),
    ],
)
def test_a_broken_rule_is_the_cause_when_it_is_certain_or_keeping_it_cures(text, given, says):
    answer = implementation.rules(given)
    assert answer.text == text, answer.detail
    assert says in answer.detail
    assert (answer.culprit is not None) == (text == "yes")


def test_a_certain_breach_comes_before_a_suspicious_one_and_the_culprit_says_where():
    suspicious = rule("input_range", strength="suspicious", cure=TESTED["cure"], samples=[3, 4])
    answer = implementation.rules(with_rules(suspicious, rule(), tests=kept("c", "input_range")))
    assert answer.culprit is not None
    assert (answer.cause, answer.culprit.kind) == ("implementation", "no_zero_grad")
    assert answer.culprit.place == "train.py:12"
    assert answer.culprit.remedy == "call zero_grad"
    assert answer.cure == ""
    second = implementation.rules(with_rules(suspicious, tests=kept("c", "input_range")))
    assert second.culprit is not None
    assert (second.cause, second.culprit.samples) == ("data", (3, 4))


@pytest.mark.parametrize(("name", "cause"), sorted(implementation.RULE_CAUSES.items()))
def test_every_rule_that_is_no_fault_of_the_code_names_its_cause(name, cause):
    assert cause in Cause.__args__
    answer = implementation.rules(with_rules(rule(name)), silent=True)
    assert answer.cause == cause


def test_in_a_run_that_did_not_crash_a_breach_is_enough():
    for item in (rule("double_softmax"), rule(strength="suspicious"), TESTED):
        assert implementation.rules(with_rules(item), silent=True).yes
    assert not implementation.rules(facts(), silent=True).yes


def where(letter=None, without=None, **fields):
    tests = {}
    if letter is not None:
        tests["operation"] = shown(letter, "safe_operation log@train.py:31", role="test")
    if without is not None:
        tests["samples"] = shown(without, "replace_samples 80", role="test")
    return facts(controls=found(locate=location(**fields)), tests=tests)


@pytest.mark.parametrize(
    ("text", "cause", "given", "says"),
    [
        ("no", None, facts(), "every operation of the replay gave finite numbers"),
        ("no", None, where("c", harmless=True), "every operation of the replay gave finite"),
        ("yes", "data", where(phase="input"), "log of 0 is -inf"),
        ("yes", "initialisation", where(phase="parameter"), "log of 0 is -inf"),
        ("no", None, where("c", reason="overflow"), "the end of something else"),
        ("no", None, where("c", reason="fp16_overflow"), "the end of something else"),
        ("not known", None, where(), "no replay with it kept safe was made"),
        ("no", None, where("d"), "kept inside its domain: diverged"),
        ("no", None, where("s"), "kept inside its domain: stalled"),
        ("no", None, where("i"), "kept inside its domain: inconclusive"),
        ("yes", "implementation", where("c"), "only that operation kept inside its domain"),
        ("yes", "loss_function", where("c", module=""), "log at train.py:31, forward"),
        (
            "yes",
            "data",
            where(without="c", reason="overflow"),
            "only in the rows of the samples 80",
        ),
        ("no", None, where(without="d", reason="overflow"), "the end of something else"),
        ("no", None, where(without="i", reason="overflow"), "the end of something else"),
    ],
)
def test_an_operation_is_the_cause_when_keeping_it_safe_cures(text, cause, given, says):
    answer = implementation.operation(given)
    assert (answer.text, answer.cause) == (text, cause), answer.detail
    assert says in answer.detail
    assert (answer.culprit is not None) == (text == "yes")


def test_the_culprit_is_the_line_and_the_cure_the_replay_that_kept_it_safe():
    given = where("c")
    answer = implementation.operation(given)
    assert answer.culprit is not None
    assert answer.culprit.place == "log at train.py:31, in head, forward"
    assert (answer.culprit.kind, answer.culprit.samples) == ("log_of_zero", (80,))
    assert answer.culprit.code == "loss = -p.log()"
    assert answer.cure == given.tests["operation"].spec.key
    assert set(answer.trials) == {given.controls[0].spec.key, answer.cure}


ALL = list(range(80, 112))


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        pytest.param({}, True, id="an operation"),
        pytest.param({"sample_ids": ALL}, True, id="an operation, on the whole batch"),
        pytest.param({"phase": "input"}, True, id="the input itself, in one sample's rows"),
        pytest.param({"phase": "input", "sample_ids": ALL}, False, id="every input"),
        pytest.param({"phase": "parameter"}, False, id="a parameter"),
        *[
            pytest.param({"reason": reason, "sample_ids": ALL}, False, id=f"{reason} everywhere")
            for reason in sorted(implementation.OVERFLOWS)
        ],
        *[
            pytest.param({"reason": reason}, True, id=f"{reason} in one sample's rows")
            for reason in sorted(implementation.OVERFLOWS)
        ],
    ],
)
def test_a_replay_is_made_only_where_it_can_tell_whether_a_fault_made_the_number(fields, asked):
    assert implementation.operation_suspected(where(**fields)) == asked
    assert not implementation.operation_suspected(facts())
    watched = where(**fields)
    unwatched = replace(watched, controls=(*facts().controls, *watched.controls))
    assert implementation.operation_suspected(unwatched) == asked


@pytest.mark.parametrize(
    ("ids", "batch", "few"),
    [([80], 32, (80,)), ([1, 2, 3], 32, (1, 2, 3)), ([1, 2, 3, 4], 32, ()), ([1], 1, ())],
)
def test_a_few_samples_can_be_told_from_their_batch(ids, batch, few):
    given = facts(setup={"batch_size": batch})
    assert implementation.few_samples(location(sample_ids=ids), given) == few


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({}, ("safe_operation", "log@train.py:31")),
        ({"source": ""}, ("safe_operation", "log")),
        ({"phase": "optimizer", "reason": "division"}, ("adam_eps", 1e-4)),
        ({"phase": "optimizer", "reason": "zero_times_inf"}, ("safe_operation", "log@train.py:31")),
        ({"phase": "input"}, None),
        ({"reason": "overflow"}, None),
        ({"reason": "overflow", "dtype": "float16"}, None),
        ({"reason": "overflow", "dtype": "float32"}, ("safe_operation", "log@train.py:31")),
        ({"reason": "overflow", "dtype": "float32", "step": 46}, None),
        ({"reason": "fp16_overflow", "dtype": "float32"}, None),
    ],
)
def test_the_replay_takes_just_the_fault_away(fields, change):
    # A number too large for float32 is an operation's fault only where nothing had grown before.
    found = implementation.operation_test(location(**fields), facts())
    assert (None if found is None else (found.variable, found.dose)) == change


def run(**at):
    """Return the run with the fields of some steps set: {"loss": {37: 9.0}}."""
    return [
        replace(r, **{field: steps[r.step] for field, steps in at.items() if r.step in steps})
        for r in RUN
    ]


@pytest.mark.parametrize(
    ("records", "step", "calm"),
    [
        pytest.param(RUN, 40, True, id="up to the onset"),
        pytest.param(RUN, 46, False, id="not once it has begun"),
        pytest.param(RUN, 4, False, id="too few steps to tell"),
        pytest.param(run(loss={37: 30.0}), 40, False, id="a loss that had risen"),
        pytest.param(run(loss={30: 30.0}), 40, True, id="a loss that was high long before"),
        pytest.param(run(grad_norm={38: 4.5}), 40, False, id="a gradient that had grown"),
        pytest.param(run(grad_norm={38: 3.5}), 40, True, id="one within the usual"),
        pytest.param(run(grad_norm={20: math.nan}), 40, False, id="a gradient that was lost"),
    ],
)
def test_all_was_calm_before_a_step_when_nothing_had_grown(records, step, calm):
    assert implementation.calm_before(facts(records=records), step) == calm


NON_FINITE = replace(divergence(), detector="non_finite")


@pytest.mark.parametrize(
    ("reason", "outcome", "crash", "step", "named"),
    [
        pytest.param("exp_overflow", "diverged", divergence(), 40, True, id="other harm remains"),
        pytest.param("exp_overflow", "stalled", None, 40, True, id="it no longer learns"),
        pytest.param("exp_overflow", "diverged", NON_FINITE, 40, False, id="a bad number again"),
        pytest.param("exp_overflow", "inconclusive", None, 40, False, id="it could not be tried"),
        pytest.param("exp_overflow", "diverged", divergence(), 46, False, id="all had grown"),
        pytest.param("log_of_zero", "diverged", divergence(), 40, False, id="another reason"),
    ],
)
def test_a_limit_left_in_calm_is_named_though_keeping_it_does_not_cure(
    reason, outcome, crash, step, named
):
    test = replace(
        shown("d", "safe_operation exp@train.py:31", role="test"), outcome=outcome, divergence=crash
    )
    given = facts(
        controls=found(locate=location(reason=reason, step=step)), tests={"operation": test}
    )
    answer = implementation.operation(given)
    assert answer.text == ("yes" if named else "no"), answer.detail
    assert answer.cure == ""
    assert ("until then loss and gradient were as ever" in answer.detail) == named


def after(letter="d", dose="log@train.py:31", **seen):
    """Return a test of an operation kept safe, and what its locator saw."""
    test = shown(letter, f"safe_operation {dose}", role="test")
    return replace(test, findings={"locate": location(**seen)} if seen else {})


@pytest.mark.parametrize(
    ("test", "dose"),
    [
        pytest.param(
            after(operation="div", source="train.py:33"),
            "log@train.py:31,div@train.py:33",
            id="the next one of the formula",
        ),
        pytest.param(
            after(operation="sum", source="train.py:34", reason="overflow"),
            "log@train.py:31,sum@train.py:34",
            id="finite there, and too large once added up",
        ),
        pytest.param(
            after(operation="sum", source="train.py:35", reason="overflow", step=46),
            None,
            id="an overflow further on, once all has grown",
        ),
        pytest.param(
            after(operation="sum", source="model.py:32", reason="overflow"),
            None,
            id="an overflow in another file",
        ),
        pytest.param(
            after(operation="div", source="model.py:9"),
            "log@train.py:31,div@model.py:9",
            id="a fault elsewhere",
        ),
        pytest.param(after(operation="log", source="train.py:31"), None, id="the same again"),
        pytest.param(after(phase="input"), None, id="the input"),
        pytest.param(after(phase="parameter", source="model.py:9"), None, id="a parameter"),
        pytest.param(after(phase="optimizer", reason="division"), None, id="the update"),
        pytest.param(after(operation="div", harmless=True), None, id="one that does no harm"),
        pytest.param(after("c", operation="div", source="train.py:33"), None, id="it cured"),
        pytest.param(after("i", operation="div", source="train.py:33"), None, id="not judged"),
        pytest.param(after(), None, id="nothing was seen"),
    ],
)
def test_a_further_operation_of_the_formula_is_kept_safe_as_well(test, dose):
    more = implementation.next_operation(test, test.spec.changes[0], facts())
    assert (more and more.dose) == dose


def test_where_only_an_unwatched_replay_took_the_runs_course_no_operation_was_seen():
    answer = implementation.operation(facts(controls=(control(),)))
    assert answer.text == "not tried"
    assert "watched" in answer.detail
