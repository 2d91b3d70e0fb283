"""The loss left the lowest level it had reached and does not come back.

One high loss is often one hard batch, so the middle of the last five losses is judged. The limit
lies above the floor, the lowest level in view, by the largest of three margins: `sigmas` times the
noise from step to step, `rise` times the floor, and `share` of the untrained model's loss. The last
one keeps a loss near zero quiet: from 1e-4 to 3e-3 is thirty-fold and means nothing.

A learning rate that returns to a value it had before (a warm restart) may bring back the loss of
that time. A rate that goes where it never was gets no such allowance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import as_high, finite, latest, noise, untrained_loss
from stabexp.records import StepRecord

RECENT = 5
"""Losses whose median is judged."""
BLOCK = 10
"""Steps whose median loss is one level; the floor is the lowest of them."""
ASSUMED_UNTRAINED = 1.0
"""Loss of the untrained model when the first step is not in view; usual for losses in nats."""


class Divergence(Detector):
    """Diverged when the median of five losses lies far above the lowest level in view."""

    window: int = Field(200, ge=20)
    """Steps in which the floor and the noise are measured."""

    sigmas: float = Field(8.0, gt=0)
    """Margin above the floor in robust standard deviations of the loss from step to step."""

    rise: float = Field(0.4, gt=0)
    """Margin above the floor as a share of the floor."""

    share: float = Field(0.1, gt=0)
    """Margin above the floor as a share of the loss at the run's first step."""

    early: float = Field(10.0, gt=1)
    """How many times the first loss counts as diverged during the first fifteen steps."""

    @property
    def history(self) -> int:
        return self.window + RECENT

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        if len(records) <= RECENT:
            return None
        view = latest(records, self.window + RECENT)
        level = median(as_high(record.loss for record in view[-RECENT:]))
        before = view[:-RECENT]
        losses = [record.loss for record in before]
        if not math.isfinite(sum(losses)):
            before = [record for record in before if math.isfinite(record.loss)]
            losses = finite(losses)
        if not losses:
            return None
        if len(losses) < BLOCK:
            return self._early(level, losses[0], records[-1].step)

        levels = [
            median(losses[end - BLOCK : end]) for end in range(len(losses), BLOCK - 1, -BLOCK)
        ]
        floor = min(levels)
        untrained = untrained_loss(records)
        scale = ASSUMED_UNTRAINED if untrained is None else untrained
        margin = max(self.rise * abs(floor), self.share * scale)
        if level <= floor + margin:
            return None  # the usual case ends here, before the more expensive noise
        margin = max(margin, self.sigmas * noise(losses))
        limit = floor + margin
        start = len(before) - BLOCK * (levels.index(floor) + 1)
        if level > limit and _rate_returned(records[0], before, start=start, now=view[-1].lr):
            limit = max(limit, scale + margin, max(levels) + margin)
        if level <= limit:
            return None
        message = (
            f"the loss left its floor of {floor:.4g}: median of the last {RECENT} losses "
            f"{level:.4g} at step {records[-1].step}, limit {limit:.4g}"
        )
        return Finding(value=level, limit=limit, message=message)

    def _early(self, level: float, first: float, step: int) -> Finding | None:
        """Judge a run that has no floor yet by its first loss; its noise is not known either."""
        limit = self.early * max(abs(first), ASSUMED_UNTRAINED)
        if level <= limit:
            return None
        message = (
            f"the loss rose from {first:.4g} to {level:.4g} (median of the last {RECENT}) within "
            f"the first {step + 1} steps, limit {limit:.4g}"
        )
        return Finding(value=level, limit=limit, message=message)


def _rate_returned(
    first: StepRecord, before: Sequence[StepRecord], *, start: int, now: float
) -> bool:
    """Return whether the rate rose more than threefold since the floor, to where it was before."""
    rose = now > 3 * min(record.lr for record in before[start:])
    return rose and max(first.lr, *(record.lr for record in before[: start + 1])) > now / 1.5
