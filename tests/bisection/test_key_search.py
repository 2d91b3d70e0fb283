"""The key search finds hidden sets of settings within its bound, and always ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.key_search import KeyDecision, decide, most_questions, next_questions


def search(oracle, count, *, workers=1):
    """Ask an oracle until decided: the decision, the questions in order, the rounds."""
    answers = {}
    rounds = 0
    while (decision := decide(answers, count=count)) is None:
        questions = next_questions(answers, count=count, limit=workers)
        assert questions, "undecided, but nothing to ask"
        assert not set(questions) & answers.keys()
        answers |= {question: oracle(question) for question in questions}
        rounds += 1
    assert next_questions(answers, count=count) == ()
    return decision, list(answers), rounds


def enough(*sets):
    """Diverges when one of the sets is there: more settings never cure."""
    return lambda question: any(set(wanted) <= question for wanted in sets)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_every_single_culprit_is_found_in_about_log_n_questions(count):
    for culprit in range(count):
        decision, asked, _ = search(enough({culprit}), count)
        assert decision == KeyDecision(finding="found", settings=(culprit,))
        assert len(asked) <= most_questions(count, 1)


@pytest.mark.parametrize("count", [4, 9])
def test_every_pair_that_only_acts_together_is_found(count):
    for pair in itertools.combinations(range(count), 2):
        decision, asked, _ = search(enough(pair), count)
        assert decision == KeyDecision(finding="found", settings=pair)
        assert len(asked) <= most_questions(count, 2)


hidden = st.integers(1, 24).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.frozensets(st.integers(0, count - 1), min_size=1), min_size=1, max_size=4),
    )
)


@given(hidden)
def test_one_of_several_reasons_is_found_whole_and_within_the_bound(case):
    count, sets = case
    oracle = enough(*sets)
    decision, asked, _ = search(oracle, count)
    found = frozenset(decision.settings)
    assert decision.finding == "found"
    assert oracle(found)
    assert not any(oracle(found - {setting}) for setting in found)
    assert len(asked) <= most_questions(count, len(found))


@given(hidden, st.integers(2, 5))
def test_several_workers_find_the_same_in_no_more_rounds(case, workers):
    count, sets = case
    alone, _, rounds_alone = search(enough(*sets), count)
    together, _, rounds = search(enough(*sets), count, workers=workers)
    assert together == alone
    assert rounds <= rounds_alone


@given(
    st.integers(1, 7).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.sampled_from([True, False, None]), min_size=2**count, max_size=2**count),
        )
    )
)
def test_whatever_the_answers_it_ends_and_what_it_says_is_true(case):
    count, table = case

    def oracle(question):
        return table[sum(1 << setting for setting in question)]

    decision, asked, _ = search(oracle, count)
    assert len(asked) == len(set(asked))
    nothing, everything = frozenset(), frozenset(range(count))
    match decision.finding:
        case "found":
            found = frozenset(decision.settings)
            assert oracle(found)
            assert set(decision.untold) <= found
            assert oracle(nothing) is False
        case "good_diverges":
            assert oracle(nothing)
        case "not_explained":
            assert oracle(everything) is False
        case "unresolved":
            assert oracle(nothing) is None or oracle(everything) is None


def test_of_two_reasons_that_suffice_the_one_earlier_in_order_is_named():
    decision, _, _ = search(enough({1}, {6}), 8)
    assert decision.settings == (1,)


def test_a_setting_whose_absence_cannot_be_judged_is_marked():
    # 0 and 2 fit only together, and 2 alone would be the reason.
    def oracle(question):
        return None if (0 in question) != (2 in question) else 2 in question

    decision, _, _ = search(oracle, 3)
    assert decision == KeyDecision(finding="found", settings=(0, 2), untold=(0, 2))


def test_nothing_differing_is_not_explained():
    decision, asked, _ = search(lambda question: False, 0)
    assert (decision.finding, asked) == ("not_explained", [frozenset()])


def test_what_is_running_is_not_asked_again():
    first, second = next_questions({}, count=6, limit=2)
    assert next_questions({}, count=6, running={first})[0] == second
