"""The time search finds the border between saved and lost within its bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.time_search import TimeDecision, decide, next_question

checkpoints = st.lists(st.integers(0, 10_000), min_size=1, max_size=40, unique=True)


def search(oracle, steps, answers=None):
    """Ask an oracle until decided: the decision and the questions in order."""
    answers = dict(answers or {})
    asked = []
    while (question := next_question(answers, checkpoints=steps)) is not None:
        assert decide(answers, checkpoints=steps) is None
        assert question in steps
        assert question not in answers
        answers[question] = oracle(question)
        asked.append(question)
    decision = decide(answers, checkpoints=steps)
    assert decision is not None
    return decision, asked


@given(checkpoints, st.data())
def test_the_hidden_border_is_found_within_the_bound(steps, data):
    border = data.draw(st.integers(-1, 10_001))
    decision, asked = search(lambda step: step <= border, steps)
    before = [step for step in steps if step <= border]
    after = [step for step in steps if step > border]
    assert decision == TimeDecision(
        works_from=max(before, default=None), fails_from=min(after, default=None), orderly=True
    )
    assert len(asked) <= math.ceil(math.log2(len(steps))) + 1


@given(checkpoints, st.data())
def test_whatever_the_answers_it_ends_and_names_neighbours_that_were_asked(steps, data):
    table = {step: data.draw(st.sampled_from([True, False, None])) for step in steps}
    decision, asked = search(table.get, steps)
    unjudged = sum(table[step] is None for step in asked)
    assert len(asked) <= math.ceil(math.log2(len(steps))) + 1 + unjudged
    works, fails = decision.works_from, decision.fails_from
    assert works is None or table[works]
    assert fails is None or table[fails] is False
    between = [s for s in steps if (works is None or s > works) and (fails is None or s < fails)]
    assert all(step in asked and table[step] is None for step in between)


@pytest.mark.parametrize(
    ("known", "works_from", "fails_from", "orderly"),
    [
        pytest.param({30: True, 20: False}, 30, 40, False, id="an older one failed"),
        pytest.param({10: True}, 30, 40, True, id="the cure that is known already"),
        pytest.param({40: None}, 30, 50, True, id="one that cannot be judged is left out"),
        pytest.param({35: True}, 30, 40, True, id="an answer about no checkpoint"),
    ],
)
def test_earlier_answers_are_used(known, works_from, fails_from, orderly):
    decision, _ = search(lambda step: step <= 30, [0, 10, 20, 30, 40, 50], known)
    assert (decision.works_from, decision.fails_from) == (works_from, fails_from)
    assert decision.orderly == orderly


@pytest.mark.parametrize(
    ("border", "no_return"), [(30, (30, 39)), (-1, (0, 9)), (99, None)], ids=["in", "all", "none"]
)
def test_the_point_of_no_return_lies_between_two_checkpoints(border, no_return):
    decision, _ = search(lambda step: step <= border, [10, 20, 30, 40])
    assert decision.no_return == no_return


def test_without_checkpoints_there_is_nothing_to_ask_and_nothing_works():
    assert next_question({}, checkpoints=[]) is None
    decision = decide({}, checkpoints=[])
    assert decision == TimeDecision(works_from=None, fails_from=None, orderly=True)
