"""The run does not learn: no progress over a long window, or far behind what was expected.

With Adam, a learning rate that is much too high mostly shows as a plateau and not as an explosion.
A plateau cannot be told from a finished training without knowing what to expect, so this detector
is not in the default set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import finite, latest
from stabexp.records import StepRecord

RECENT = 20
"""Losses whose median is compared with the expected figure."""


class Plateau(Detector):
    """Diverged when the run makes no progress, or lies far behind the expected loss."""

    window: int = Field(200, ge=40)
    """Steps without progress before it is reported."""

    min_improvement: float = Field(0.01, ge=0)
    """Share of the loss by which it must fall from the first to the last quarter of the window."""

    expected: float | None = None
    """Loss a healthy run reaches by step `after`; a run that is there is never on a plateau."""

    after: int = Field(200, ge=20)
    """Step from which the expected loss is asked for."""

    behind: float = Field(0.4, gt=0)
    """How far behind: share of the way from the first loss to the expected one still to go."""

    @property
    def history(self) -> int:
        return self.window

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        if self.expected is not None:
            return self._behind(records, self.expected)
        if len(records) < self.window:
            return None
        view = latest(records, self.window)
        quarter = self.window // 4
        old = finite(record.loss for record in view[:quarter])
        new = finite(record.loss for record in view[-quarter:])
        if not old or not new:
            return None
        was, now = median(old), median(new)
        limit = was - self.min_improvement * abs(was)
        if now < limit:
            return None
        message = (
            f"no progress over {self.window} steps: median loss {was:.4g} in the first quarter, "
            f"{now:.4g} in the last, {limit:.4g} was asked for"
        )
        return Finding(
            value=now, limit=limit, message=message, pattern="plateau", onset=view[0].step
        )

    def _behind(self, records: Sequence[StepRecord], expected: float) -> Finding | None:
        step = records[-1].step
        losses = finite(record.loss for record in latest(records, RECENT))
        if step < self.after or len(losses) < RECENT // 2:
            return None
        first = records[0]
        way = abs(expected)
        if first.step == 0 and math.isfinite(first.loss) and first.loss > expected:
            way = first.loss - expected
        limit = expected + self.behind * way
        now = median(losses)
        if now <= limit:
            return None
        message = (
            f"the loss is {now:.4g} at step {step}, expected {expected:.4g} by step {self.after} "
            f"(limit {limit:.4g})"
        )
        # whoever is behind at the end was behind from the start: there is no step at which it began
        return Finding(value=now, limit=limit, message=message, pattern="plateau", onset=0)
