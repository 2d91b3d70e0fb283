"""The rate is read off the curve of a ramp, and a curve that says nothing is an error."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest

from stabexp.advice.rate_curve import SHARE, Smoothed, suggest
from stabexp.advice.rates import RateRamp
from stabexp.errors import StabexpError

RAMP = RateRamp()
RATES = [RAMP.rate(step) for step in range(200)]


def sigmoid_fall(rate, *, middle=1e-2, start=2.3, end=0.5):
    """Return a loss that falls from `start` to `end` around a rate and shoots up far above it."""
    decades = math.log10(rate / middle)
    return end + (start - end) / (1 + math.exp(4 * decades)) + 10 ** (4 * (decades - 2))


def scattered(loss, *, by=0.05, seed=0):
    draws = random.Random(seed)
    return [loss(rate) + draws.gauss(0, by) for rate in RATES]


def read(losses):
    smoothed = Smoothed()
    for loss in losses:
        if not smoothed.add(loss):
            break
    return suggest(RATES[: len(losses)], losses, smoothed.values), smoothed


def test_the_ramp_goes_from_1e_7_to_10_in_200_steps_by_equal_factors():
    assert (RATES[0], RATES[-1]) == (1e-7, pytest.approx(10.0))
    factors = [after / before for before, after in pairwise(RATES)]
    assert min(factors) == pytest.approx(max(factors))


def test_the_moving_average_is_what_a_slow_weighted_mean_gives():
    losses = [3.0, 2.0, 2.5, 1.0, 4.0, 1.5, 1.0]
    smoothed = Smoothed()
    for loss in losses:
        smoothed.add(loss)
    medians = [sorted(losses[max(0, i - 4) : i + 1]) for i in range(7)]
    values = [(m[(len(m) - 1) // 2] + m[len(m) // 2]) / 2 for m in medians]
    weights = [0.98 ** (6 - i) for i in range(7)]
    slow = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert smoothed.values[-1] == pytest.approx(slow)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("middle", [1e-4, 1e-2, 0.3])
def test_the_figure_is_about_where_the_losses_themselves_fall_fastest(middle, seed):
    found, smoothed = read(scattered(lambda rate: sigmoid_fall(rate, middle=middle), seed=seed))
    assert 0.4 * middle < found.rate < 2.5 * middle
    assert found.rate == pytest.approx(SHARE * found.steepest)
    assert found.falls_from < found.steepest <= found.falls_to
    assert smoothed.ended == ("rose" if middle < 0.1 else None)


def test_one_hard_batch_makes_no_difference():
    losses = scattered(sigmoid_fall)
    hard = list(losses)
    hard[5] = hard[60] = hard[90] = 80.0
    assert read(hard)[0].rate == pytest.approx(read(losses)[0].rate, rel=0.3)


def test_noise_at_the_start_is_not_the_steepest_fall():
    losses = scattered(sigmoid_fall, by=0.02)
    losses[0] += 0.5  # the average has nothing else yet, so it falls by half of that at once
    assert read(losses)[0].rate > 1e-3


def test_a_loss_below_zero_ends_the_ramp_where_it_has_gone_far_up():
    losses = [10 * loss - 40 for loss in scattered(sigmoid_fall)]
    found, smoothed = read(losses)
    assert smoothed.ended == "rose"
    assert 4e-3 < found.rate < 2.5e-2


def test_a_loss_that_is_not_finite_ends_the_ramp():
    losses = scattered(sigmoid_fall)
    losses[150] = math.nan
    assert read(losses)[1].ended == "not finite"


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        pytest.param([math.nan] * 3, "0 points", id="never finite"),
        pytest.param(
            [2.3, 2.2, 2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8, 50, 60, 70, 80, 90, 95],
            r"too few points: \d+ .* at least 20 .*--first",
            id="begun too high",
        ),
        pytest.param(
            [2.3 + 0.05 * math.sin(7.3 * i) for i in range(200)],
            "does not fall clearly",
            id="nothing is learned",
        ),
        pytest.param([1.0] * 200, "does not fall clearly", id="nothing moves"),
    ],
)
def test_a_curve_that_says_nothing_is_an_error(losses, message):
    with pytest.raises(StabexpError, match=message):
        read(losses)
