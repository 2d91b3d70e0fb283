"""Slope and second derivative of the loss: falling faster, levelling off, or turning upwards.

The losses of single steps are noisy, so the loss is averaged over three windows in a row; their
differences are the slope and, of the slopes, the second derivative.
Source row B14.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import Field

from stabexp.monitors.base import Monitor
from stabexp.records import StepRecord


class LossCurve(Monitor):
    """Slope (per step) and second derivative (per step²) of the smoothed loss."""

    window: int = Field(8, ge=1, le=30)
    """Steps that one average is taken over; three of them are needed."""

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> Mapping[str, float]:
        wanted = 3 * self.window
        latest = [*history[-(wanted - 1) :], record]
        if len(latest) < wanted or latest[0].step != record.step - wanted + 1:
            return {}  # the run's first record may stand before a gap
        losses = [each.loss for each in latest]
        if not all(map(math.isfinite, losses)):
            return {}
        size = self.window
        first, middle, last = (sum(losses[at : at + size]) / size for at in (0, size, 2 * size))
        return {
            "loss/slope": (last - middle) / size,
            "loss/second_derivative": (last - 2 * middle + first) / size**2,
        }
