"""The loss jumped far above its recent level for a few steps.

A single high loss is often one hard batch. So a step is abnormal when it lies more than `threshold`
robust deviations above the median of the `window` steps before the jump, and a spike is reported
after `patience` abnormal steps in a row. It may still recover: only `divergence` says that it did
not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import as_high, centre_and_spread, finite, latest, untrained_loss
from stabexp.records import StepRecord


class LossSpike(Detector):
    """Diverged when the loss stays high for `patience` steps."""

    window: int = Field(50, ge=2)
    """Steps of normal training to compare with."""

    threshold: float = Field(6.0, gt=0)
    """How many robust deviations above the median count as abnormal."""

    rise: float = Field(0.4, ge=0)
    """How far above the median at least, as a share of it: keeps a very calm run from alarms."""

    share: float = Field(0.1, ge=0)
    """How far above the median at least, as a share of the loss at the run's first step."""

    patience: int = Field(3, ge=1)
    """Abnormal steps in a row before the spike is reported."""

    @property
    def history(self) -> int:
        return self.window + self.patience

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        before = finite(r.loss for r in latest(records, self.window, skip=self.patience))
        if len(before) < max(2, self.window // 2):
            return None
        centre, spread = centre_and_spread(before)
        scale = untrained_loss(records) or 0.0
        limit = centre + max(self.threshold * spread, self.rise * abs(centre), self.share * scale)
        lowest = min(as_high(record.loss for record in latest(records, self.patience)))
        if lowest <= limit or math.isinf(lowest):
            return None  # a loss that was never finite is the business of `non_finite`
        message = (
            f"the loss stayed above {limit:.4g} for {self.patience} step(s), lowest {lowest:.4g}; "
            f"median before {centre:.4g}"
        )
        return Finding(value=lowest, limit=limit, message=message)
