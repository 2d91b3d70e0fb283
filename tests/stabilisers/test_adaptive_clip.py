"""The limit follows the norms, and neither a burst nor a NaN moves it."""

from __future__ import annotations

import math

import pytest
import torch
from stabilisers.stabilised import foreign

from stabexp.stabilisers import build
from stabexp.stabilisers.clip_rules import ZScore, clip_factors

USUAL = [1.0 + 0.1 * math.sin(7.0 * k) for k in range(40)]


def limits_over(norms, **given):
    """Return the factor for each norm, and the limit afterwards."""
    stabiliser = build({"adaptive_clip": given})["adaptive_clip"]
    stabiliser.attach(None, [None], step=0)
    factors = [stabiliser.factors([], torch.tensor([norm])).item() for norm in norms]
    rule, state = stabiliser.rule(), stabiliser._states["0"]
    return factors, rule.limit(state).item()


@pytest.mark.parametrize("kind", ["mean_deviation", "quantile", "z_score"])
def test_a_burst_is_clipped_and_hardly_moves_the_limit(kind):
    _, usual = limits_over(USUAL, kind=kind, quantile=0.9)
    factors, after = limits_over([*USUAL, 50.0, *USUAL[:5]], kind=kind, quantile=0.9)
    assert factors[40] < 1.3 / 50
    assert after == pytest.approx(usual, rel=0.15)


@pytest.mark.parametrize("kind", ["mean_deviation", "quantile", "z_score"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_leaves_no_trace_and_stays_what_it_is(kind, bad):
    """0 × inf would be a NaN that no loss scaler and no detector takes for an overflow."""
    factors, after = limits_over([*USUAL[:30], bad, *USUAL[30:]], kind=kind)
    without, usual = limits_over(USUAL, kind=kind)
    assert after == usual
    assert factors == [*without[:30], 1.0, *without[30:]]


def test_a_burst_before_anything_is_clipped_does_not_set_the_limit():
    _, limit = limits_over([*USUAL[:10], 50.0, *USUAL[10:19]], warmup=20)
    plain = [*USUAL[:10], 50.0, *USUAL[10:19]]
    mean = sum(plain) / 20
    deviation = math.sqrt(sum((n - mean) ** 2 for n in plain) / 19)
    assert mean + 3 * deviation > 35  # the sketch: mean and deviation as they are
    assert limit < 4


def test_nothing_is_clipped_in_warmup_but_above_the_fixed_bound():
    factors, _ = limits_over([1.0, 8.0, 1.0], at_most=4.0)
    assert factors == pytest.approx([1.0, 0.5, 1.0], abs=1e-5)
    assert limits_over([1.0, 8.0, 1.0])[0] == [1.0, 1.0, 1.0]


def test_the_larger_a_spike_the_closer_to_the_mean_z_score_clips_it():
    rule = ZScore(memory=0.97, warmup=2, deviations=2.5)
    state = rule.start(torch.device("cpu"))
    for norm in (0.9, 1.1, 1.0):
        rule.see(state, torch.tensor(norm), torch.tensor(math.inf))
    small, large = (rule.limit_for(state, torch.tensor(n)).item() for n in (1.5, 15.0))
    assert 1.0 < large < small < 1.5
    assert clip_factors(torch.tensor(2.0), torch.tensor(1.0)).item() == pytest.approx(0.5)


def test_two_optimizers_have_a_limit_each():
    records, _, _ = foreign("two optimizers", {"adaptive_clip": {"warmup": 2}})
    metrics = records[-1].metrics
    assert metrics["adaptive_clip/limit"] != metrics["adaptive_clip/1/limit"]
    assert math.isnan(records[0].metrics["adaptive_clip/limit"])  # nothing seen yet


def test_bursts_that_throw_a_training_over_do_not_any_more(saves):
    saves("adaptive_clip")
