"""A parameter, a gradient that was used, or the loss for several steps, is NaN or infinite.

Not every NaN is an accident. A gradient scaler probes for the largest loss scale that works, so a
step it skips is normal life. A batch without a single target has the loss 0/0 and no gradient at
all, and the next batch is fine. What counts is whether the damage reached the model, or stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pydantic import Field

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.robust import latest
from stabexp.records import StepRecord

MEASURED = 32
"""Steps in which one finite norm shows that norms are recorded at all."""


class NonFinite(Detector):
    """Diverged when parameters or used gradients are not finite, or the loss stays so."""

    patience: int = Field(3, ge=1)
    """Steps in a row with a non-finite loss, while the model itself stays finite."""

    max_skips: int = Field(20, ge=1)
    """Updates in a row that may be skipped for non-finite gradients; one more is reported."""

    @property
    def history(self) -> int:
        return max(self.patience, self.max_skips + 1, 2)

    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        newest = records[-1]
        if newest.nonfinite_params or _broke(records, lambda record: record.param_norm):
            count = max(1, newest.nonfinite_params)
            message = f"{count} parameter(s) hold NaN or Inf after step {newest.step}"
            return Finding(value=float(count), limit=0.0, message=message)
        if _bad_gradient(records):
            if not newest.skipped:
                count = max(1, newest.nonfinite_grads)
                message = f"{count} gradient(s) of step {newest.step} held NaN or Inf and were used"
                return Finding(value=float(count), limit=0.0, message=message)
            skips = _in_a_row(records, lambda r: r.skipped and _nonfinite_gradient(r))
            if skips > self.max_skips:
                message = (
                    f"{skips} updates in a row were skipped for non-finite gradients "
                    f"(limit {self.max_skips})"
                )
                return Finding(value=float(skips), limit=float(self.max_skips), message=message)
        if not math.isfinite(newest.loss):
            bad = _in_a_row(records, lambda record: not math.isfinite(record.loss))
            if bad >= self.patience:
                message = f"the loss was {newest.loss} for {bad} step(s) in a row"
                return Finding(value=newest.loss, limit=float(self.patience), message=message)
        return None


def _nonfinite_gradient(record: StepRecord) -> bool:
    return record.nonfinite_grads > 0 or not math.isfinite(record.grad_norm)


def _bad_gradient(records: Sequence[StepRecord]) -> bool:
    return records[-1].nonfinite_grads > 0 or _broke(records, lambda record: record.grad_norm)


def _broke(records: Sequence[StepRecord], norm: Callable[[StepRecord], float]) -> bool:
    """Return whether the newest norm is infinite, or NaN though it was measured before.

    A norm that was NaN at every step was not recorded: an old log may hold the losses only.
    """
    value = norm(records[-1])
    if math.isfinite(value):
        return False
    return math.isinf(value) or any(math.isfinite(norm(r)) for r in latest(records, MEASURED))


def _in_a_row(records: Sequence[StepRecord], is_bad: Callable[[StepRecord], bool]) -> int:
    count = 0
    for record in reversed(records):
        if not is_bad(record):
            break
        count += 1
    return count
