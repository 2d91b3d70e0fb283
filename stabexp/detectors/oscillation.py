"""The loss swings wildly, and wider than it did before.

Wide swings alone are the nature of small batches. So the last `window` losses must vary by more
than `variation` of their mean, and their typical swing must be `growth` times that of the `window`
losses before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import finite, latest, noise, untrained_loss
from stabexp.records import StepRecord


class Oscillation(Detector):
    """Diverged when the loss swings wildly and wider than before."""

    window: int = Field(20, ge=10)
    """Losses that are judged; as many before them are the comparison."""

    variation: float = Field(0.5, gt=0)
    """Coefficient of variation (standard deviation ÷ |mean|) that counts as wild."""

    growth: float = Field(3.0, gt=1)
    """How many times wider than before the typical swing from step to step must be."""

    share: float = Field(0.1, ge=0)
    """How wide the swings must be at least, as a share of the loss at the run's first step."""

    @property
    def history(self) -> int:
        return 2 * self.window

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        if len(records) < 2 * self.window:
            return None
        losses = [record.loss for record in latest(records, 2 * self.window)]
        if len(finite(losses)) < len(losses):
            return None  # the business of `non_finite`
        recent, before = losses[self.window :], losses[: self.window]
        deviation = pstdev(recent)
        if deviation <= self.variation * abs(fmean(recent)):
            return None
        swing, usual = noise(recent), noise(before)
        least = self.share * (untrained_loss(records) or 0.0)
        limit = max(self.growth * usual, least)
        if swing <= limit:
            return None
        message = (
            f"the loss swings by {swing:.4g} from step to step, limit {limit:.4g} (before: "
            f"{usual:.4g}); standard deviation of the last {self.window} losses {deviation:.4g} "
            f"at a mean of {fmean(recent):.4g}"
        )
        return Finding(value=swing, limit=limit, message=message)
