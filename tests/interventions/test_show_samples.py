"""Chosen batches come first, word for word as the dose names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.errors import ConfigError
from stabexp.interventions import build
from stabexp.interventions.show_samples import read_batches, write_batches


def test_batches_are_what_the_dose_names():
    (shown,) = build({"show_samples": "3+5,17,8+8+2"})
    assert shown.batches() == ((3, 5), (17,), (8, 8, 2))
    assert not shown.freezes()


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=1).map(tuple), min_size=1).map(tuple))
def test_a_written_dose_reads_back(batches):
    assert read_batches(write_batches(batches)) == batches


@pytest.mark.parametrize("dose", ["", "3,", "3++5", "3 5", "-1", "3+a"])
def test_anything_else_is_refused_with_an_example(dose):
    with pytest.raises(ConfigError, match=r"show_samples.*for example 3\+5,17\+5"):
        build({"show_samples": dose})


def test_a_long_wrong_dose_does_not_fill_the_screen():
    with pytest.raises(ConfigError) as caught:
        build({"show_samples": "1," * 10_000})
    assert len(str(caught.value)) < 250
