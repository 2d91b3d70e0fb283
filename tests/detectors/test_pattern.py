from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabexp.detectors.pattern import classify

NAN = math.nan

VECTORS = [
    ("sudden_jump", [2.1, 2.0, 1.9, 8734.5, NAN]),
    ("sudden_jump", [1.8, 1.7, 1.6, 1.5, 1.4, 87234.5, NAN]),
    ("exponential_growth", [2.1, 2.3, 2.8, 4.5, 12.3, 89.7, NAN]),
    ("exponential_growth", [2.1, 2.2, 2.5, 3.1, 4.8, 9.2, 23.5, 156.7, NAN]),
    ("oscillating_divergence", [2.1, 1.8, 2.5, 1.6, 3.2, 1.4, 5.8, NAN]),
    ("oscillating_divergence", [2.0, 1.8, 2.2, 1.6, 2.5, 1.4, 3.2, 1.2, 5.8, NAN]),
    ("sudden_jump", [2.0, 2.1, 1.9, 2.0, NAN]),
    ("sudden_jump", [2.0, 2.1, 1.9, 2.0, 6.5, 6.8, 6.4, 6.6]),
    ("unclear", [2.0, 2.1, 1.9, 2.0, 2.05]),
    ("sudden_jump", [0.16, 0.29, 0.29, 0.17, 0.03, 17.81, 1006.0, 2645.0]),
    ("unclear", [2.0, NAN]),
    ("unclear", [2.0, 2.0, 2.0, 2.0]),
    ("unclear", [0.0, 0.0, 0.0]),
    ("unclear", []),
]


@pytest.mark.parametrize(("pattern", "losses"), VECTORS)
def test_the_shape_has_the_name(pattern, losses):
    assert classify(losses) == pattern


calm_runs = st.builds(
    lambda seed, count: [2.0 + 0.1 * random.Random(seed + i).random() for i in range(count)],
    st.integers(0, 10_000),
    st.integers(3, 60),
)
afterwards = st.sampled_from([[], [NAN], [math.inf]])


@given(calm_runs, st.floats(10, 1e12), afterwards)
def test_any_jump_of_ten_times_is_a_sudden_jump(calm, factor, after):
    assert classify([*calm, factor * 2.1, *after]) == "sudden_jump"


@given(calm_runs, st.floats(10, 1e6), st.integers(1, 20))
def test_a_jump_that_stays_is_a_sudden_jump(calm, factor, count):
    assert classify([*calm, *[factor * 2.1] * count]) == "sudden_jump"


@given(st.floats(1.01, 100), st.integers(8, 60), st.floats(1e-3, 1e3), afterwards)
def test_growth_by_any_factor_is_exponential(ratio, count, start, after):
    assert classify([start * ratio**k for k in range(count)] + after) == "exponential_growth"


@given(calm_runs, st.floats(1.3, 5), st.integers(8, 20))
def test_growth_after_a_calm_stretch_is_exponential(calm, ratio, count):
    grown = [2.1 * ratio**k for k in range(1, count)]
    assert classify([*calm, *grown]) == "exponential_growth"


@given(st.floats(1.2, 2.5), st.integers(7, 14), st.floats(0.05, 0.3), afterwards)
def test_growing_alternation_is_oscillating(growth, count, first, after):
    swings = [10.0 + first * (-growth) ** k for k in range(count)]
    assert classify(swings + after) == "oscillating_divergence"


@given(st.sampled_from(VECTORS), st.floats(1e-6, 1e6))
def test_the_unit_of_the_loss_does_not_matter(vector, scale):
    pattern, losses = vector
    assert classify([loss * scale for loss in losses]) == pattern


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_growth_is_seen_through_noise(noise):
    rng = random.Random(0)
    found = [
        classify([2 * max(1, 1.1 ** (k - 30)) * (1 + noise * rng.gauss(0, 1)) for k in range(64)])
        for _ in range(50)
    ]
    assert found.count("exponential_growth") >= 45


def test_noise_has_a_shape_in_at_most_one_of_twenty():
    rng = random.Random(0)
    found = [classify([2 * (1 + 0.1 * rng.gauss(0, 1)) for _ in range(64)]) for _ in range(200)]
    assert found.count("unclear") >= 190
