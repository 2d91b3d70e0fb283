"""What normal looked like: medians and robust deviations, which a few wild steps cannot move.

A mean and a standard deviation are pulled up by the very steps they should expose. The median and
the median absolute deviation hold until half of the values are bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from statistics import median

from stabexp.records import StepRecord

SIGMA_PER_MAD = 1.4826
"""Standard deviation of normal noise with a median absolute deviation of 1."""


def latest(records: Sequence[StepRecord], count: int, *, skip: int = 0) -> list[StepRecord]:
    """Return up to `count` records before the newest `skip`, oldest first; a deque will do."""
    newest_first = list(islice(reversed(records), skip, skip + count))
    newest_first.reverse()
    return newest_first


def finite(values: Iterable[float]) -> list[float]:
    """Return the values that are neither NaN nor infinite, in order."""
    return [value for value in values if math.isfinite(value)]


def as_high(values: Iterable[float]) -> list[float]:
    """Return the values with NaN read as +Inf: a loss that cannot be computed is no low loss."""
    return [math.inf if math.isnan(value) else value for value in values]


def centre_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and the robust standard deviation of at least one finite value."""
    centre = median(values)
    return centre, SIGMA_PER_MAD * median([abs(value - centre) for value in values])


def noise(values: Sequence[float]) -> float:
    """Return the robust standard deviation from step to step; a slow trend does not count.

    Independent noise makes the difference of two neighbours √2 times as wide as one of them.
    0.0 for fewer than three values.
    """
    if len(values) < 3:
        return 0.0
    steps = [abs(after - before) for before, after in pairwise(values)]
    return SIGMA_PER_MAD / math.sqrt(2) * median(steps)


def untrained_loss(records: Sequence[StepRecord]) -> float | None:
    """Return |loss| of the run's first step, None when that step is not in view or not finite."""
    first = records[0]
    return abs(first.loss) if first.step == 0 and math.isfinite(first.loss) else None
