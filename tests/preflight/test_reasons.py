"""A finding that follows from another one is told there, and never both hide each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.preflight.reasons import FOLLOWS, WHY, without_consequences
from stabexp.preflight.result import Finding


def finding(name: str, *, certain: bool = True) -> Finding:
    return Finding(name=name, where="", what="", why=WHY[name], change="", certain=certain)


def names(*given: Finding) -> list[str]:
    return [each.name for each in without_consequences(given)]


def test_every_cause_and_every_consequence_is_a_known_finding():
    assert FOLLOWS.keys() | set().union(*FOLLOWS.values()) <= WHY.keys()
    assert [name for name, after in FOLLOWS.items() if name in after] == []


@pytest.mark.parametrize("first", sorted(FOLLOWS))
def test_no_finding_and_its_consequences_vanish_together(first):
    for second in FOLLOWS[first]:
        assert names(finding(first), finding(second)) == [first]
        assert names(finding(second), finding(first)) in ([first], [second])


@given(st.lists(st.sampled_from(sorted(WHY)), min_size=1, unique=True))
def test_something_is_always_told(found):
    assert without_consequences([finding(name) for name in found])


def test_certain_findings_come_first_and_consequences_are_named():
    told = without_consequences(
        [
            finding("cut_samples", certain=False),
            finding("raw_bytes"),
            finding("initial_loss", certain=False),
        ]
    )
    assert [each.name for each in told] == ["raw_bytes", "cut_samples"]
    assert told[0].leads_to == ("initial_loss",)
