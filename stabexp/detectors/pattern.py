"""How the loss left its healthy range: in one jump, growing by a factor, or in growing swings.

A sudden jump points to one bad batch or a numeric overflow, exponential growth to a learning rate
that is too high or to a fault in accumulation, growing swings to damaged optimizer state or numeric
instability. Only the shape counts: losses in other units give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import correlation, fmean, median

from stabexp.detectors.robust import noise
from stabexp.records import Pattern

JUMP = math.log(10)
"""A rise by this factor (as a logarithm) in one step is a jump whatever the noise."""
ABOVE_NOISE = 10.0
"""A smaller rise is a jump when it is this many times the noise before it."""
CLIMB_ABOVE_NOISE = 4.0
"""A climb of several steps must be this many times the noise before it."""
DOMINANT = 0.75
"""Share of a rise that one step must make for the rise to be that step."""
SWINGS = 5
"""Swings in a row that must alternate and grow."""


def classify(losses: Sequence[float]) -> Pattern:
    """Return the shape of the losses up to the first that is not finite; oldest first.

    A non-finite loss after a calm stretch is a jump: nothing led up to it.
    """
    bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    values = list(losses[:bad])
    if len(values) < 3:
        return "unclear"
    if _swings_grow(values):
        return "oscillating_divergence"
    rise = _to_top(values)
    logs = _logs(rise)
    climb = _last_climb(logs)
    size = logs[-1] - logs[-1 - climb]
    beyond_noise = size > CLIMB_ABOVE_NOISE * noise(logs[: len(logs) - climb])
    if climb >= 3 and beyond_noise and _grows(logs[-1 - climb :]):
        return "exponential_growth"
    if _trends(logs):
        return "exponential_growth"
    if climb and _jumps(rise, logs, size=size):
        return "sudden_jump"
    calm = climb < 3 and size < math.log(2)
    return "sudden_jump" if bad is not None and calm else "unclear"


def _to_top(values: Sequence[float]) -> list[float]:
    """Return the losses up to the first that reaches the top: what follows only stays there."""
    top = max(values)
    base = min(values[: values.index(top) + 1])
    height = base + 0.9 * (top - base)
    return list(values[: next(i for i, value in enumerate(values) if value >= height) + 1])


def _logs(values: Sequence[float]) -> list[float]:
    """Return logarithms; losses that reach zero or below are shifted up by their own usual size."""
    lowest = min(values)
    if lowest <= 0:
        size = sorted(abs(value) for value in values)[len(values) // 2] or max(map(abs, values))
        values = [value - lowest + (size or 1.0) for value in values]
    return [math.log(value) for value in values]


def _last_climb(logs: Sequence[float]) -> int:
    """Return how many steps in a row rise up to the last value."""
    climb = 0
    while climb + 1 < len(logs) and logs[-1 - climb] > logs[-2 - climb]:
        climb += 1
    return climb


def _grows(logs: Sequence[float]) -> bool:
    """Return whether a climb without a break is growth and not a jump, noise or a straight line."""
    steps = [after - before for before, after in pairwise(logs)]
    total = logs[-1] - logs[0]
    third = max(1, len(steps) // 3)
    keeps_up = fmean(steps[-third:]) >= 0.7 * fmean(steps[:third])
    beyond_chance = total >= math.log(1.5) or len(steps) >= 6
    return max(steps) < DOMINANT * total and keeps_up and beyond_chance


def _trends(logs: Sequence[float]) -> bool:
    """Return whether the losses grow by a factor, through noise, over the last 12 steps or more."""
    for length in (12, 24, 48):
        tail = logs[-length:]
        if len(tail) < length or min(tail) == max(tail):
            continue
        steps = [after - before for before, after in pairwise(tail)]
        grown = fmean(tail[-3:]) - fmean(tail[:3])
        half = length // 2
        keeps_up = (tail[-1] - tail[half]) >= 0.5 * (tail[half] - tail[0])
        straight = correlation(range(length), tail) > 0.85
        if straight and keeps_up and grown > math.log(1.25) and max(steps) < 0.5 * grown:
            return True
    return False


def _jumps(values: Sequence[float], logs: Sequence[float], *, size: float) -> bool:
    """Return whether one step, or two, made the rise, and by more than noise explains.

    `size` is how far the logarithms climbed in all: a tenfold step that made half of it will do.
    """
    if max(after - before for before, after in pairwise(logs)) >= max(JUMP, 0.5 * size):
        return True
    two_back = logs[max(0, len(logs) - 3)]
    in_two = logs[-1] - min(two_back, logs[-2])
    if in_two < DOMINANT * size:
        return False
    rise = values[-1] - min(values[-3:-1])
    usual = noise(values[:-2])
    # with too few losses to know their noise, doubling at the least is asked for
    return in_two >= JUMP or (in_two >= math.log(2) and rise > ABOVE_NOISE * usual)


def _swings_grow(values: Sequence[float]) -> bool:
    """Return whether the losses end in swings up and down, each wider than the one before.

    One swing in the row may be narrower than its predecessor. A last swing ten times the one before
    it is a jump out of noise.
    """
    steps = [after - before for before, after in pairwise(values)]
    row = 1
    while row < len(steps) and steps[-row] * steps[-row - 1] < 0:
        row += 1
    widths = [abs(step) for step in steps[-row:]]
    if not widths[0] or row < SWINGS or widths[-1] >= 10 * widths[-2]:
        return False
    tail = widths[-SWINGS:]
    narrower = sum(after <= before for before, after in pairwise(tail))
    usual = median(abs(step) for step in steps[:-SWINGS]) if len(steps) > SWINGS else min(tail)
    return narrower <= 1 and tail[-1] == max(tail) and tail[-1] > 2 * max(min(tail[:2]), usual)
