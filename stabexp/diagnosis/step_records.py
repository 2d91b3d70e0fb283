"""From curves to step records, so that a log is judged by the code that judges a live run.

A log knows less than a recorded run and knows the end. What is not there is filled with what is
usual, because a gap is no NaN. And a gradient norm that is not finite, though a later loss is, was
never used: a gradient scaler skipped that update, for parameters do not recover from NaN.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from statistics import median

from stabexp.diagnosis.curves import Curves
from stabexp.records import StepRecord

NO_SCORE = 0.01
"""A first loss below this is no untrained model's: such losses (of policies, say) start near 0."""
USUAL = 32
"""Measured values whose median stands in for one that is missing."""


def step_records(curves: Curves, axis: Sequence[int]) -> list[StepRecord]:
    """Return one record for each step of the axis; what lies between two counts for the second.

    Of several gradient norms between two steps the largest is taken, NaN before all. A loss or a
    rate that is not there is the last one before. The first record has step 0 where it shows what
    the untrained model scored, and only there: detectors measure a rise by that.
    """
    norms = list(_between(_points(curves, "grad_norm"), axis))
    losses = list(_held(curves.loss.points, axis))
    rates = _held(_points(curves, "lr"), axis)
    scales = _held(_points(curves, "loss_scale"), axis)
    ratios = _between(_points(curves, "update_ratio"), axis)
    sizes = _between(_points(curves, "param_norm"), axis)
    healthy = max((i for i, loss in enumerate(losses) if math.isfinite(loss)), default=-1)
    has_scale = "loss_scale" in curves.found
    rows = zip(count(), axis, losses, rates, norms, scales, ratios, sizes, strict=False)
    return [
        StepRecord(
            step=step if index else _first_step(curves),
            time=math.nan,
            loss=loss,
            lr=rate,
            grad_norm=norm,
            loss_scale=scale if has_scale else None,
            update_ratio=ratio,
            param_norm=size,
            skipped=not math.isfinite(norm) and "grad_norm" in curves.found and index < healthy,
        )
        for index, step, loss, rate, norm, scale, ratio, size in rows
    ]


def _first_step(curves: Curves) -> int:
    step, loss = next(iter(curves.loss.points.items()))
    if 0 <= step <= curves.interval and abs(loss) >= NO_SCORE:
        return 0
    return step or -1


def _points(curves: Curves, quantity: str) -> Mapping[int, float]:
    curve = curves.found.get(quantity)  # type: ignore[call-overload]
    return curve.points if curve is not None else {}


def _held(points: Mapping[int, float], axis: Sequence[int]) -> Iterator[float]:
    """Yield the newest value at or before each step of the axis, NaN before the first."""
    coming = iter(points.items())
    after = next(coming, None)
    value = math.nan
    for step in axis:
        while after is not None and after[0] <= step:
            value = after[1]
            after = next(coming, None)
        yield value


def _between(points: Mapping[int, float], axis: Sequence[int]) -> Iterator[float]:
    """Yield the largest value since the step before, a usual one where there is none."""
    coming = iter(points.items())
    after = next(coming, None)
    known: deque[float] = deque(maxlen=USUAL)
    for step in axis:
        here = []
        while after is not None and after[0] <= step:
            here.append(after[1])
            after = next(coming, None)
        known.extend(value for value in here if math.isfinite(value))
        if any(math.isnan(value) for value in here):
            yield math.nan
        elif here:
            yield max(here)
        else:
            yield median(known) if known else math.nan
