"""The rate to use is 0.3 times the one at which the loss falls fastest.

While the rate rises, the loss first stands still, then falls, then shoots up. Single losses are
noisy, so they are smoothed by a moving average that weighs the last 50 or so (β = 0.98, corrected
for its start). It runs behind: where it falls fastest, the loss itself did so at a third of the
rate or less. So 0.3 of that is no margin, it is about where the loss itself falls fastest. Its
first values are hardly smoothed at all, so the steepest point is looked for only from where a tenth
of the whole fall is done. Source row C5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from stabexp.detectors.robust import noise
from stabexp.errors import StabexpError

BETA = 0.98
"""Weight of what was before, in the moving average."""
HARD = 5
"""Losses whose median goes into the average, so that one or two hard batches do not show."""
STOP = 4.0
"""A smoothed loss this many times the best ends the ramp."""
SHARE = 0.3
"""Of the rate at the steepest fall, what is suggested."""
FEWEST = 20
"""Points up to the best loss below which a curve says nothing."""
BEGUN = 0.1
"""Share of the fall that must be done before it counts as begun."""
CLEAR = 0.5
"""A fall below this many deviations of single losses may be chance."""

Ended = Literal["rose", "not finite", "ramp over", "training over"]


class Smoothed:
    """The moving average of the losses so far, and whether the ramp has gone too far."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.ended: Ended | None = None
        self._latest: list[float] = []
        self._sum = 0.0
        self._best = math.inf

    def add(self, loss: float) -> bool:
        """Take in the next loss; return whether the ramp may go on."""
        if not math.isfinite(loss):
            self.ended = "not finite"
            return False
        self._latest = [*self._latest, loss][-HARD:]
        self._sum = BETA * self._sum + (1 - BETA) * median(self._latest)
        value = self._sum / (1 - BETA ** (len(self.values) + 1))
        self.values.append(value)
        self._best = min(self._best, value)
        # Four times the best; a loss below zero has no multiples, so the distance is what counts.
        if value - self._best > (STOP - 1) * abs(self._best):
            self.ended = "rose"
        return self.ended is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What one ramp suggests."""

    rate: float
    """The rate to use."""
    steepest: float
    """Where the smoothed loss falls fastest."""
    falls_from: float
    """Where it has begun to fall."""
    falls_to: float
    """Where it is lowest."""
    points: int
    """Steps up to the lowest loss."""
    fall: float
    """How far the smoothed loss fell."""


def suggest(
    rates: Sequence[float], losses: Sequence[float], smoothed: Sequence[float]
) -> Suggestion:
    """Return what the losses of a ramp suggest.

    Args:
        rates: One a step, each the same factor above the one before.
        losses: As measured, before the update of each step.
        smoothed: What `Smoothed` made of them, as far as it went.

    Raises:
        StabexpError: If there are too few points, or the loss does not fall.
    """
    if not smoothed:
        raise StabexpError("lr-find: 0 points: not one loss is finite; see: stabexp check")
    lowest = min(range(len(smoothed)), key=lambda i: smoothed[i])
    start = median(losses[: max(1, len(losses) // 10)])
    fall = start - smoothed[lowest]
    scatter = noise(losses[: max(3, len(smoothed) // 5)])
    if not fall > max(CLEAR * scatter, 1e-9 * abs(start)):
        raise StabexpError(
            f"lr-find: the loss does not fall clearly at any rate from {rates[0]:.3g} to "
            f"{rates[len(smoothed) - 1]:.3g} ({len(smoothed)} points): from {start:.4g} to "
            f"{smoothed[lowest]:.4g} at best, and single losses scatter by {scatter:.2g}. Does the "
            "training learn at all? see: stabexp check"
        )
    if lowest + 1 < FEWEST:
        raise StabexpError(
            f"lr-find: too few points: {lowest + 1} up to the lowest loss, at a rate of "
            f"{rates[lowest]:.3g}, and at least {FEWEST} are needed. Begin lower (--first), or "
            "take more steps (--steps)"
        )
    begun = 1 + max((i for i in range(lowest) if smoothed[i] > start - BEGUN * fall), default=-1)
    steepest = max(range(begun, lowest + 1), key=lambda i: _slope(smoothed, i, lowest))
    return Suggestion(
        rate=SHARE * rates[steepest],
        steepest=rates[steepest],
        falls_from=rates[begun],
        falls_to=rates[lowest],
        points=lowest + 1,
        fall=fall,
    )


def _slope(values: Sequence[float], index: int, last: int) -> float:
    """Return how fast the values fall per step around an index."""
    before, after = max(index - 1, 0), min(index + 1, last)
    return (values[before] - values[after]) / max(after - before, 1)
