from __future__ import annotations

import math

import pytest

from stabexp.detectors.divergence import Divergence

CALM = [1.0, 1.05, 0.95, 1.02, 0.98] * 12


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([2.0, 9.0], id="two steps in all"),
        pytest.param([*CALM, 9.0, 1.0, 1.0], id="one hard batch"),
        pytest.param([*CALM, 9.0, 1.0, 9.0], id="two hard batches"),
        pytest.param([*CALM, *[0.5] * 9], id="a sudden improvement"),
        pytest.param([*CALM, *[1.35] * 9], id="35 % more"),
        pytest.param([2.3, *[1e-4] * 60, *[3e-3] * 30], id="thirty times next to nothing"),
        pytest.param([2.3, 2.5, 2.8, 3.5, 4.0, 4.0, 4.0, 3.9, 3.0], id="a bad but common start"),
        pytest.param([0.01, 0.3, -0.4, 0.5, 0.2, 0.4, 0.6, 0.3], id="a start around zero"),
        pytest.param([math.nan] * 20, id="no loss at all"),
    ],
)
def test_stays_silent_on(records, losses):
    assert Divergence().check(records(*losses)) is None


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([*CALM, *[1.6] * 9], id="60 % more"),
        pytest.param([*CALM, *[3.0] * 3], id="three steps of three times as much"),
        pytest.param([*CALM, 9.0, math.nan, 9.0], id="high and not a number"),
        pytest.param([*[-x for x in CALM], *[-0.3] * 9], id="a negative loss"),
        pytest.param([2.3, 2.5, 2.8, *[30.0] * 6], id="in the first steps"),
        pytest.param([2.3, 121.6, 80.0, 35.5, 10.4, 7.1], id="from the second step, as with Adam"),
        pytest.param([math.nan, *CALM, *[3.0] * 5], id="a first loss that is not a number"),
    ],
)
def test_speaks_on(records, losses):
    found = Divergence().check(records(*losses))
    assert found is not None
    assert found.value > found.limit


def test_noise_widens_the_limit(records):
    noisy = [0.5, 1.5, 0.9, 1.4, 0.6] * 12
    assert Divergence().check(records(*noisy, *[2.0] * 9)) is None
    assert Divergence(sigmas=1.0).check(records(*noisy, *[2.0] * 9)) is not None


def test_a_restart_may_bring_back_an_earlier_loss_but_no_more(records):
    down = [2.3 - 0.02 * step for step in range(100)]
    lrs = [*(1e-2 * (1 - step / 100) for step in range(100)), *[1e-2] * 9]
    assert Divergence().check(records(*down, *[1.5] * 9, lrs=lrs)) is None
    assert Divergence().check(records(*down, *[3.5] * 9, lrs=lrs)) is not None
    assert Divergence().check(records(*down, *[1.5] * 9)) is not None


def test_the_message_has_place_value_and_limit(records):
    message = Divergence().check(records(*CALM, *[3.0] * 5)).message
    assert message == (
        "the loss left its floor of 1: median of the last 5 losses 3 at step 64, limit 1.419"
    )
