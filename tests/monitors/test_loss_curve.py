"""Slope and second derivative of losses that are known."""

from __future__ import annotations

import random

import pytest
from monitors.records import seen

from stabexp.monitors.loss_curve import LossCurve


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_slope_and_second_derivative_of_a_parabola(noise):
    draw = random.Random(0)
    losses = [5 - 0.1 * t + 0.01 * t * t + draw.gauss(0, noise) for t in range(40)]
    last = seen(LossCurve(window=8), loss=losses)[-1]
    assert last["loss/second_derivative"] == pytest.approx(0.02, rel=0.02 if noise else 1e-9)
    # Between the middles of the last two windows: 8 steps before the newest one's end.
    assert last["loss/slope"] == pytest.approx(-0.1 + 0.02 * 31.5, rel=0.02 if noise else 1e-9)


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param([1.0] * 23, id="too few"),
        pytest.param([1.0] * 20 + [float("nan")] + [1.0] * 10, id="not finite"),
    ],
)
def test_no_slope_without_three_windows_of_losses(losses):
    assert seen(LossCurve(window=8), loss=losses)[-1] == {}
