from __future__ import annotations

import dataclasses
import math
import random

import pytest

from stabexp.detectors import build, judge
from stabexp.detectors.telemetry import opinion

CAREFUL = {"warmup_steps": 50, "clip_norm": 1.0, "precision": "fp32", "batch_size": 32, "lr": 1e-3}
RNG = random.Random(3)
CALM = [2.0 + 0.05 * RNG.gauss(0, 1) for _ in range(100)]
NOISY = [2.0 + 1.2 * RNG.uniform(-1, 1) for _ in range(100)]
GROWTH = [2.0 * 1.4**k for k in range(1, 12)]
JUMP = [40.0, 42.0, 41.0]


def diverged(records, losses, **fields):
    steps = records(*losses, **fields)
    for count in range(1, len(steps) + 1):
        found = judge(build({}), steps[:count])
        if found is not None:
            return steps[:count], found
    raise AssertionError("these losses were meant to diverge")


@pytest.mark.parametrize(
    ("losses", "settings", "cause", "reason"),
    [
        ([*CALM, *GROWTH], {}, "learning_rate", "exponential growth"),
        ([*CALM[:20], *GROWTH], {"warmup_steps": 0}, "warmup", "no warmup, and the first"),
        ([*CALM, *GROWTH], {"warmup_steps": 0}, "learning_rate", "exponential growth"),
        ([*NOISY, *JUMP], {"batch_size": 4}, "batch_size", "batches of 4"),
        ([*CALM, math.nan], {"precision": "fp16"}, "precision", "step 100 was the first"),
        ([*CALM, *GROWTH[:3], math.nan], {"precision": "fp16"}, "learning_rate", "exponential"),
        ([*CALM, math.nan], {"precision": "bf16"}, "inconclusive", "64 healthy steps in view"),
        ([*CALM, *JUMP], {}, "inconclusive", "none of their figures is unusual"),
    ],
)
def test_the_opinion_on(records, losses, settings, cause, reason):
    steps, divergence = diverged(records, losses)
    found, text = opinion(steps, divergence, {**CAREFUL, **settings})
    assert (found, reason in text) == (cause, True), text


@pytest.mark.parametrize(
    ("clip", "cause"), [(None, "clip_norm"), (1000.0, "clip_norm"), (1.0, "inconclusive")]
)
def test_norms_out_of_proportion_point_to_clipping_unless_it_was_on(records, clip, cause):
    losses = [*CALM, *JUMP]
    norms = [30.0 if step == 80 else 1.0 for step in range(len(losses))]
    steps, divergence = diverged(records, losses, grad_norms=norms)
    assert opinion(steps, divergence, {**CAREFUL, "clip_norm": clip})[0] == cause


def test_many_skipped_updates_point_to_precision(records):
    overflow = {"skipped": True, "grad_norm": math.inf, "nonfinite_grads": 2}
    steps, divergence = diverged(records, [*CALM, *GROWTH])
    steps = [dataclasses.replace(s, **overflow) if s.step % 3 == 0 else s for s in steps]
    assert opinion(steps, divergence, {**CAREFUL, "precision": "fp16"})[0] == "precision"


def test_a_rate_that_jumped_points_to_the_schedule(records):
    losses = [*CALM, *JUMP]
    lrs = [1e-3 if step < 95 else 1e-2 for step in range(len(losses))]
    steps, divergence = diverged(records, losses, lrs=lrs)
    cause, reason = opinion(steps, divergence, CAREFUL)
    assert cause == "schedule"
    assert reason == "the rate jumped from 0.001 to 0.01 just before the onset"


def test_a_rate_that_rose_slowly_points_to_the_rate_when_nothing_else_speaks(records):
    losses = [*CALM, *JUMP]
    lrs = [1e-5 * (step + 1) for step in range(len(losses))]
    steps, divergence = diverged(records, losses, lrs=lrs)
    assert "had risen from 0.00037" in opinion(steps, divergence, CAREFUL)[1]


def test_a_norm_that_rises_with_the_loss_does_not_point_to_clipping(records):
    losses = [*CALM, *GROWTH]
    steps, divergence = diverged(records, losses, grad_norms=[loss**3 for loss in losses])
    assert opinion(steps, divergence, {**CAREFUL, "clip_norm": None})[0] == "learning_rate"


def test_large_updates_in_healthy_steps_point_to_the_rate(records):
    steps, divergence = diverged(records, [*CALM, *JUMP], update_ratio=0.05)
    assert opinion(steps, divergence, CAREFUL)[0] == "learning_rate"


def test_without_settings_nothing_is_blamed_on_them(records):
    steps, divergence = diverged(records, [*CALM[:20], *JUMP])
    assert opinion(steps, divergence, {})[0] == "inconclusive"
