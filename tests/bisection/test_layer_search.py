"""Hide the guilty modules in a model; the search has to name them in few questions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.layer_search import WHOLE, LayerDecision, decide, next_questions

GPT = (
    "",
    "embed",
    "blocks",
    "blocks.0",
    "blocks.0.attention",
    "blocks.0.attention.qkv",
    "blocks.0.mlp",
    "blocks.1",
    "blocks.1.attention",
    "blocks.1.attention.qkv",
    "blocks.1.mlp",
    "norm",
    "head",
)


def inside(names, chosen):
    """Return every module that a set of names stands for."""
    return {n for n in names if any(c in (WHOLE, n) or n.startswith(f"{c}.") for c in chosen)}


def search(names, cures, *, hint=()):
    """Answer questions until the search is decided; return the decision and the questions."""
    outcomes = {}
    while (decision := decide(outcomes, names=names, hint=hint)) is None:
        (question,) = next_questions(outcomes, names=names, hint=hint)
        assert question not in outcomes
        outcomes[question] = cures(question)
    assert next_questions(outcomes, names=names, hint=hint) == ()
    return decision, outcomes


def needs(names, guilty):
    """Return a world that is cured when the change acts in every guilty module."""

    def cures(question):
        return "cured" if set(guilty) <= inside(names, question) else "diverged"

    return cures


@st.composite
def models(draw):
    """Draw module names as `named_modules` has them: any tree, parents before children."""
    names = []

    def grow(prefix, depth):
        for child in range(draw(st.integers(0 if prefix else 1, 4 if depth < 3 else 0))):
            name = f"{prefix}.{child}" if prefix else f"part{child}"
            names.append(name)
            grow(name, depth + 1)

    if draw(st.booleans()):
        names.append("")
    grow("", 0)
    return names


def plain(names):
    return [name or WHOLE for name in names]


@given(models(), st.data())
def test_the_guilty_modules_are_named_in_few_questions(names, data):
    own = plain(names)
    guilty = data.draw(st.sets(st.sampled_from(own), min_size=1, max_size=4))
    hint = data.draw(st.sets(st.sampled_from([*own, "gone"]), max_size=4))
    decision, outcomes = search(names, needs(own, guilty), hint=hint)
    topmost = {g for g in guilty if not any(g in inside(own, [o]) for o in guilty - {g})}
    assert set(decision.modules) == topmost
    assert decision.outcome == "cured"
    assert len(outcomes) <= 2 * len(topmost) * math.log2(len(own)) + 2


@given(models(), st.data())
def test_where_several_ways_cure_the_set_has_no_name_too_many(names, data):
    own = plain(names)
    sets = st.sets(st.sampled_from(own), min_size=1, max_size=3)
    ways = data.draw(st.lists(sets, min_size=1, max_size=3))

    def cures(question):
        return "cured" if any(way <= inside(own, question) for way in ways) else "diverged"

    decision, _ = search(names, cures)
    chosen = set(decision.modules)
    assert cures(chosen) == "cured"
    for name in chosen:
        without = (inside(own, chosen) - {name}) if name != WHOLE else set(own) - {WHOLE}
        assert not any(way <= without for way in ways)


@given(models(), st.randoms(use_true_random=False), st.data())
def test_whatever_the_outcomes_it_ends_and_names_a_set_that_was_seen_to_cure(names, random, data):
    hint = data.draw(st.sets(st.sampled_from(plain(names)), max_size=3))
    kinds = ["cured", "diverged", "delayed", "stalled", "inconclusive"]
    decision, outcomes = search(names, lambda question: random.choice(kinds), hint=hint)
    if decision.modules is None:
        assert "cured" not in [outcomes[q] for q in outcomes]
    else:
        assert outcomes[frozenset(decision.modules)] == decision.outcome
        assert decision.outcome in {"cured", "stalled"}


@given(models(), st.data())
def test_several_workers_find_the_same(names, data):
    own = plain(names)
    guilty = data.draw(st.sets(st.sampled_from(own), min_size=1, max_size=3))
    cures = needs(own, guilty)
    alone, _ = search(names, cures)
    outcomes = {}
    while (decision := decide(outcomes, names=names)) is None:
        first = next_questions(outcomes, names=names)
        asked = next_questions(outcomes, names=names, limit=3)
        assert asked[:1] == first
        assert 1 <= len(asked) == len(set(asked)) <= 3
        busy = next_questions(outcomes, names=names, running=asked[:1], limit=2)
        assert asked[0] not in busy
        outcomes |= {question: cures(question) for question in asked}
    assert decision == alone


def test_a_right_hint_is_asked_first_and_saves_questions():
    guilty = {"blocks.1.mlp"}
    cures = needs(plain(GPT), guilty)
    plainly, all_questions = search(GPT, cures)
    hinted, few = search(GPT, cures, hint=["blocks.1.mlp", "head"])
    assert next_questions({}, names=GPT, hint=["blocks.1.mlp"]) == (frozenset(guilty),)
    assert plainly.modules == hinted.modules == ("blocks.1.mlp",)
    assert (plainly.hinted, hinted.hinted) == (False, True)
    assert len(few) < len(all_questions)


def test_a_wrong_hint_costs_one_question():
    cures = needs(plain(GPT), {"blocks.0.attention"})
    decision, questions = search(GPT, cures, hint=["head"])
    assert decision.modules == ("blocks.0.attention",)
    assert not decision.hinted
    assert len(questions) == len(search(GPT, cures)[1]) + 1


def test_a_modules_own_work_needs_the_module_and_not_only_its_parts():
    decision, questions = search(GPT, needs(plain(GPT), {"blocks.0.attention"}))
    assert decision.modules == ("blocks.0.attention",)
    assert frozenset({WHOLE}) in questions


def test_nothing_helps():
    decision, questions = search(GPT, lambda question: "diverged")
    assert decision == LayerDecision(modules=None, outcome="diverged")
    assert len(questions) == 1


def test_freezing_everything_stalls_and_a_smaller_set_learns():
    def cures(question):
        if question == frozenset({WHOLE}):
            return "stalled"
        return "cured" if "head" in inside(GPT, question) else "diverged"

    decision, _ = search(GPT, cures)
    assert decision == LayerDecision(modules=("head",), outcome="cured")


def test_a_model_of_one_module():
    assert search([""], lambda question: "cured")[0].modules == (WHOLE,)
    with pytest.raises(ValueError, match="no modules"):
        decide({}, names=[])
