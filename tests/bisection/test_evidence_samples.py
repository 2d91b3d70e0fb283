"""Whether samples are to blame is what the search among them found, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_facts import facts, placebos
from bisection.scripted_runs import SUDDEN

from stabexp.bisection.evidence import samples
from stabexp.bisection.facts import DataFacts

BAD = DataFacts(
    verdict="bad_data",
    why="it trains through without sample 7, and another state crashes on it too",
    samples=(7,),
    exact=True,
    trials=("abc",),
    cure="abc",
    looks=("sample 7 reaches 1e9 where others reach 3",),
)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        pytest.param("yes", facts(data=BAD), id="bad data"),
        pytest.param("no", facts(data=replace(BAD, verdict="hard_batch")), id="a fragile state"),
        pytest.param("no", facts(data=replace(BAD, verdict="not_data")), id="not the data"),
        pytest.param(
            "not known", facts(data=replace(BAD, verdict="undecided")), id="some cure, no proof yet"
        ),
        pytest.param(
            "not tried",
            facts(data=replace(BAD, verdict="undecided", samples=())),
            id="undecided, and nothing cured so far: nothing speaks for samples, or against",
        ),
        pytest.param("not tried", facts(divergence=SUDDEN), id="no search though it came at once"),
        pytest.param(
            "not tried", facts(placebos=placebos("dl")), id="no search, the order matters"
        ),
        pytest.param("no", facts(), id="it grew in any order: nothing speaks for samples"),
    ],
)
def test_samples_are_blamed_when(text, given):
    answer = samples.data(given)
    assert answer.text == text
    assert (answer.culprit is not None) == (answer.cure != "") == (text == "yes")


def test_the_culprit_names_the_samples_and_how_they_look():
    answer = samples.data(facts(data=BAD))
    assert answer.culprit is not None
    assert answer.culprit.samples == (7,)
    assert answer.culprit.place == "sample 7"
    assert "reaches 1e9" in answer.culprit.detail
    many = samples.data(facts(data=replace(BAD, samples=tuple(range(40)))))
    assert many.culprit is not None
    assert many.culprit.place.startswith("samples 0, 1, ")
    assert many.culprit.place.endswith("10, 11, …")
    assert len(many.culprit.samples) == 40
