"""The history of the loss scale: how often it overflowed, and how long it has held.

A scale that keeps halving is half precision running out of room, long before the loss says so.
Source row A9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stabexp.monitors.base import Monitor
from stabexp.records import StepRecord

OVERFLOWS = "loss_scale/overflows"
HELD = "loss_scale/steps_held"


class LossScale(Monitor):
    """Overflows so far and steps since the loss scale last changed; nothing without a scaler."""

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> Mapping[str, float]:
        if record.loss_scale is None:
            return {}
        before = history[-1] if history else None
        earlier = before.metrics if before is not None else {}
        same = before is not None and before.loss_scale == record.loss_scale
        return {
            OVERFLOWS: earlier.get(OVERFLOWS, 0.0) + record.skipped,
            HELD: earlier.get(HELD, 0.0) + 1 if same else 0.0,
        }
