from __future__ import annotations

import math

import pytest

from stabexp.detectors.loss_spike import LossSpike

CALM = [1.0, 1.05, 0.95, 1.02, 0.98] * 12


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([*CALM, 9.0, 1.0, 1.0], id="one hard batch"),
        pytest.param([*CALM, 0.5, 0.4, 0.3], id="a sudden improvement"),
        pytest.param([*CALM[:10], 9.0, 9.0, 9.0], id="too little history to compare with"),
        pytest.param([*CALM, 1.2, 1.2, 1.2], id="20 % more in a calm run"),
        pytest.param([*CALM, 9.0, 9.0, 1.0], id="a spike that is over"),
        pytest.param([*CALM, *[math.nan] * 3], id="no number at all"),
    ],
)
def test_stays_silent_on(records, losses):
    assert LossSpike(window=50, patience=3).check(records(*losses)) is None


def test_speaks_when_the_loss_stays_high(records):
    found = LossSpike(window=50, patience=3).check(records(*CALM, 8.0, 9.0, math.nan))
    assert (found.value, round(found.limit, 3)) == (8.0, 1.4)


def test_a_single_step_is_enough_with_a_patience_of_one(records):
    assert LossSpike(patience=1).check(records(*CALM, 2.0)) is not None
