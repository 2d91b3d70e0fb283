from __future__ import annotations

import math

import pytest

from stabexp.detectors.oscillation import Oscillation

CALM = [1.0, 1.1, 0.9, 1.05, 0.95] * 4
WILD = [0.2, 2.5] * 10


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param(CALM * 2, id="a calm run"),
        pytest.param(WILD * 2, id="swings that were always there"),
        pytest.param([*CALM, *[1.0, 1.5] * 10], id="wider, but not wild"),
        pytest.param(WILD, id="too little history to compare with"),
        pytest.param([2.3, *[1e-3] * 19, *[1e-4, 4e-3] * 10], id="wild next to nothing"),
        pytest.param([*CALM, *WILD[:-1], math.nan], id="no number"),
    ],
)
def test_stays_silent_on(records, losses):
    assert Oscillation().check(records(*losses)) is None


def test_speaks_when_the_swings_have_grown(records):
    found = Oscillation().check(records(*CALM, *WILD))
    assert found is not None
    assert found.value > 5 * found.limit
