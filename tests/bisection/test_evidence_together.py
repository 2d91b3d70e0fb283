"""Two changes are blamed together only when each was tried alone from there, and failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_facts import FAILED, facts, ladder, shown

from stabexp.bisection.evidence import together
from stabexp.bisection.facts import DataFacts

HALF, FORMAT = "learning_rate 0.5", "precision fp32"
SINGLES = (FAILED["learning_rate"], FAILED["precision"])


def pair(letter, *changes, **fields):
    return (shown(letter, *(changes or (FORMAT, HALF)), **fields),)


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        ("yes", facts(*SINGLES, pairs=pair("c")), "only together cure precision fp32 and learning"),
        ("no", facts(*SINGLES, pairs=pair("d")), "learning_rate ×0.5: diverged"),
        ("no", facts(*SINGLES, pairs=pair("s")), "stalled"),
        ("no", facts(*SINGLES, pairs=pair("i")), "inconclusive"),
        ("not tried", facts(*SINGLES), "no pair of changes was tried"),
        ("no", facts(FAILED["precision"], pairs=pair("c")), "cured"),
        ("no", facts(*SINGLES, pairs=pair("c", start=0)), "cured"),
        (
            "no",
            facts(
                ladder("learning_rate", "cd", (0.5, 0.1), robust=False), SINGLES[1], pairs=pair("c")
            ),
            "cured",
        ),
        (
            "no",
            facts(ladder("learning_rate", "id", (0.5, 0.1)), SINGLES[1], pairs=pair("c")),
            "cured",
        ),
    ],
)
def test_a_pair_is_the_cause_when_it_cures_and_neither_does_alone(text, given, says):
    answer = together.joint(given)
    assert answer.text == text, answer.detail
    assert says in answer.detail
    assert (answer.culprit is not None) == (answer.cure != "") == (text == "yes")


def test_a_mechanism_switched_off_can_be_half_of_the_cure():
    held = "hold_rate on"
    tests = {"schedule": shown("d", held, role="test")}
    given = facts(SINGLES[0], tests=tests, pairs=pair("c", held, HALF))
    answer = together.joint(given)
    assert answer.yes
    assert set(answer.trials) == {
        given.pairs[0].spec.key,
        tests["schedule"].spec.key,
        SINGLES[0].trials[0].spec.key,
    }


def test_samples_that_cure_alone_make_no_pair():
    # A hard batch: without it the run trains through, so with any other change as well.
    alone = shown("c", "replace_samples 80,81", role="data")
    data = DataFacts(verdict="hard_batch", why="the state was fragile", samples=(80, 81))
    given = facts(
        SINGLES[0], data=data, data_trials=(alone,), pairs=pair("c", "replace_samples 80,81", HALF)
    )
    assert not together.joint(given).yes
    failed = replace(given, data_trials=(replace(alone, outcome="diverged"),))
    assert together.joint(failed).yes


def test_a_change_that_cured_and_after_which_it_crashed_again_is_half_of_the_cure():
    held, lower = "hold_rate on", "learning_rate 0.5"
    cured = shown("c", held, role="test")
    given = facts(SINGLES[0], tests={"schedule": cured}, pairs=pair("c", held, lower))
    assert not together.joint(given).yes
    again = shown("d", held, role="proof", last=90)
    answer = together.joint(replace(given, disproved={"schedule": again}))
    assert answer.yes
    assert "hold_rate on alone: crashed again at step 46" in answer.detail
