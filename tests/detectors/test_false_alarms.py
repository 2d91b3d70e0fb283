"""The default detectors stay silent on healthy runs of many kinds and speak on divergences."""

from __future__ import annotations

import math
import random
import time
from collections import deque

import pytest

from stabexp.detectors import build, history_needed, judge

STEPS = 600
SEEDS = range(8)
NAN = math.nan


def descent(step: int, *, start: float = 2.3, end: float = 0.5, rate: float = 60.0) -> float:
    return end + (start - end) * math.exp(-step / rate)


def small_batch(rng, step):
    return max(0.0, descent(step) * (1 + 0.3 * rng.gauss(0, 1))), 1e-3


def warmup_hump(rng, step):
    hump = 0.5 * math.exp(-((step - 20) ** 2) / 100)
    return descent(step) + hump + 0.05 * rng.gauss(0, 1), 1e-3 * min(1, (step + 1) / 50)


def cosine_to_zero(rng, step):
    lr = 0.5e-3 * (1 + math.cos(math.pi * step / STEPS))
    return descent(step) + 0.05 * rng.gauss(0, 1), lr


def restarts(rng, step):
    """Cycles of 150 steps: each restart brings half of the lost loss back for a while."""
    phase = step % 150
    lr = 0.5e-3 * (1 + math.cos(math.pi * phase / 150))
    bump = 0.8 * (phase / 15) * math.exp(1 - phase / 15) if step >= 150 else 0.0
    return descent(step, end=0.3) + bump + 0.03 * rng.gauss(0, 1), lr


def to_nothing(rng, step):
    """Memorised data: a loss of 1e-4 with bumps to 3e-3 that last for twenty steps."""
    bump = 3e-3 if step > 200 and step % 97 < 20 else 0.0
    return (descent(step, end=1e-4, rate=20) + bump) * math.exp(rng.gauss(0, 0.7)), 1e-3


def heavy_tails(rng, step):
    t2 = rng.gauss(0, 1) / math.sqrt(rng.expovariate(1.0))  # Student's t, two degrees of freedom
    return max(0.0, descent(step) + 0.08 * t2), 1e-3


def skewed_batches(rng, step):
    return descent(step) * rng.lognormvariate(0, 0.6), 1e-3


def curriculum(rng, step):
    harder = 1.3 if step >= 300 else 1.0
    return harder * descent(step, end=1.0) + 0.1 * rng.gauss(0, 1), 1e-3


def evidence_bound(rng, step):
    """A loss that becomes negative, as a likelihood of densities does."""
    return descent(step, start=5.0, end=-40.0) + 2.0 * rng.gauss(0, 1), 1e-3


def policy_gradient(rng, step):
    """A loss around zero that says little."""
    return rng.gauss(0, 0.5), 1e-3


def slow_waves(rng, step):
    """Unshuffled data: harder and easier parts follow each other."""
    return descent(step, end=1.5) + 0.2 * math.sin(step / 10) + 0.05 * rng.gauss(0, 1), 1e-3


def still(rng, step):
    """The loss of a model that is not trained at all: no noise, no movement."""
    return 2.3, 1e-3


def bad_start(rng, step):
    """A huge first loss from a poor initialisation, gone after a few steps."""
    return descent(step) + 40 * math.exp(-step / 3) + 0.05 * rng.gauss(0, 1), 1e-3


def early_hump(rng, step):
    """Adam's first steps often make the loss worse before it falls."""
    return descent(step) + 2.0 * (step / 6) * math.exp(1 - step / 6) + 0.1 * rng.gauss(0, 1), 1e-3


def sum_reduction(rng, step):
    """Losses summed over the batch, so that losses and gradient norms are in the thousands."""
    return 1000 * descent(step) * (1 + 0.1 * rng.gauss(0, 1)), 1e-3


HEALTHY = [
    small_batch,
    warmup_hump,
    cosine_to_zero,
    restarts,
    to_nothing,
    heavy_tails,
    skewed_batches,
    curriculum,
    evidence_bound,
    policy_gradient,
    slow_waves,
    still,
    bad_start,
    early_hump,
    sum_reduction,
]


def healthy_run(records, curve, seed):
    rng = random.Random(f"{curve.__name__} {seed}")
    points = [curve(rng, step) for step in range(STEPS)]
    typical = 1000.0 if curve is sum_reduction else 1.0
    norms = [typical * rng.lognormvariate(0, 0.8) for _ in points]
    return records(*(loss for loss, _ in points), grad_norms=norms, lrs=[lr for _, lr in points])


def first_alarm(run, detectors, *, keep_first=True):
    """Judge a run as it is judged live: after every step, with a limited view of the past."""
    size = history_needed(detectors)
    view = deque(maxlen=size)
    for record in run:
        view.append(record)
        pinned = keep_first and len(view) == size
        found = judge(detectors, [run[0], *view] if pinned else view)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("curve", HEALTHY, ids=lambda curve: curve.__name__)
def test_the_default_set_stays_silent_on_a_healthy_run(records, curve):
    detectors = build({})
    alarms = [first_alarm(healthy_run(records, curve, seed), detectors) for seed in SEEDS]
    assert [alarm for alarm in alarms if alarm is not None] == []


@pytest.mark.parametrize("curve", [small_batch, to_nothing, curriculum, slow_waves])
def test_the_default_set_stays_silent_when_the_first_step_is_out_of_view(records, curve):
    run = healthy_run(records, curve, 0)
    assert first_alarm(run, build({}), keep_first=False) is None


def calm(count, level, seed=0, noise=0.05):
    rng = random.Random(seed)
    return [level * (1 + noise * rng.gauss(0, 1)) for _ in range(count)]


def learning(count, *, end=0.5, noise=0.05, seed=0):
    rng = random.Random(seed)
    return [descent(step, end=end) * (1 + noise * rng.gauss(0, 1)) for step in range(count)]


DIVERGED = {
    "jump then NaN": [2.1, 2.0, 1.9, 8734.5, NAN],
    "late jump then NaN": [1.8, 1.7, 1.6, 1.5, 1.4, 87234.5, NAN],
    "growth then NaN": [2.1, 2.3, 2.8, 4.5, 12.3, 89.7, NAN],
    "slow growth then NaN": [2.1, 2.2, 2.5, 3.1, 4.8, 9.2, 23.5, 156.7, NAN],
    "swings then NaN": [2.1, 1.8, 2.5, 1.6, 3.2, 1.4, 5.8, NAN],
    "long swings then NaN": [2.0, 1.8, 2.2, 1.6, 2.5, 1.4, 3.2, 1.2, 5.8, NAN],
    "rises from 0.5 to 3 and stays": [*learning(200), *calm(12, 3.0, noise=0.1)],
    "creeps from 0.5 to 3": [*learning(200), *(0.5 + 0.025 * k for k in range(100))],
    "rises from 0.5 to 3, noisy": [*learning(200, noise=0.2), *calm(12, 3.0, noise=0.3)],
    "rises from 2.3 to 30": [*calm(40, 2.3), *(2.3 * 1.2**k for k in range(15)), *calm(9, 30)],
    "rises from 2.3 to 30 at once": [*calm(6, 2.3), *calm(8, 30)],
    "forgets everything it learned": [*learning(300, end=0.3), *calm(20, 2.4)],
    "swings between good and bad": [*learning(100), *([0.4, 6.0] * 6)],
    "a bound that collapses": [*(-40 + 2 * x for x in calm(100, 1.0, noise=1.0)), *calm(9, -3.0)],
    "a small squared error": [*calm(60, 0.02), *calm(12, 0.4)],
    "infinite and stays so": [*learning(50), math.inf],
}


@pytest.mark.parametrize("losses", DIVERGED.values(), ids=DIVERGED.keys())
def test_the_default_set_speaks_on(records, losses):
    assert first_alarm(records(*losses), build({})) is not None


@pytest.mark.parametrize("losses", DIVERGED.values(), ids=DIVERGED.keys())
def test_a_log_of_losses_alone_is_judged_too(records, losses):
    losses = [*losses, *([losses[-1]] * 3)]
    run = records(*losses, grad_norms=[NAN] * len(losses))
    assert first_alarm(run, build({})) is not None


def test_a_rate_that_rises_to_where_it_never_was_is_no_restart(records):
    losses = [*learning(200, end=0.3), *calm(20, 1.5)]
    lrs = [*([1e-4] * 200), *([1e-3] * 20)]
    assert first_alarm(records(*losses, lrs=lrs), build({})) is not None


def test_judging_one_step_is_cheap(records):
    detectors = build({})
    run = deque(healthy_run(records, small_batch, 0), maxlen=history_needed(detectors))
    best = math.inf
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            judge(detectors, run)
        best = min(best, (time.perf_counter() - start) / 50)
    # meant to be below 60 µs; the limit is for a slow, shared machine
    assert best < 300e-6
