"""The gradient norm before clipping grew far beyond its healthy range and stays there.

What is large depends on the model: a transformer's norms lie far under a convolutional network's.
So a norm must be large against the run's own recent steps *and* in absolute terms. A single large
norm is what clipping is for; several in a row are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import finite, latest
from stabexp.records import StepRecord

ENOUGH = 10
"""Steps before the rise that make a baseline; with fewer the stricter absolute limit holds."""


class GradientExplosion(Detector):
    """Diverged when the gradient norm stays huge for `patience` steps."""

    window: int = Field(50, ge=1)
    """Steps of normal training to compare with."""

    factor: float = Field(30.0, gt=1)
    """How many times the median norm counts as exploded."""

    absolute: float = Field(100.0, ge=0)
    """A norm up to this is never an explosion."""

    absolute_early: float = Field(1000.0, ge=0)
    """The same during the first steps, when there is little to compare with."""

    patience: int = Field(5, ge=1)
    """Steps in a row before the explosion is reported."""

    @property
    def history(self) -> int:
        return self.window + self.patience

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        if not self.absolute < records[-1].grad_norm < math.inf:
            return None  # the usual case; a norm that is not finite is the business of `non_finite`
        recent = finite(record.grad_norm for record in latest(records, self.patience))
        before = finite(r.grad_norm for r in latest(records, self.window, skip=self.patience))
        if len(recent) < self.patience or not before:
            return None
        usual = median(before)
        absolute = self.absolute if len(before) >= ENOUGH else self.absolute_early
        limit = max(self.factor * usual, absolute)
        lowest = min(recent)
        if lowest <= limit:
            return None
        message = (
            f"the gradient norm stayed above {limit:.4g} for {self.patience} step(s), lowest "
            f"{lowest:.4g}; median before {usual:.4g}"
        )
        return Finding(value=lowest, limit=limit, message=message)
