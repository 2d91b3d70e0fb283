"""How many samples each step really had, beside how many it should have.

A loader that drops what it cannot read, or a collator that cuts, makes smaller batches and says
nothing: the gradient is noisier than the learning rate was chosen for.
Source row B11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import Field, PrivateAttr

from stabexp.monitors.base import Monitor
from stabexp.records import StepRecord

MISSING = "batch/missing"

LOOK_BACK = 50
"""Steps in which short batches are told from those at the ends of epochs."""


class BatchSize(Monitor):
    """Samples missing from each step's batch, and whether that is more than an epoch's end."""

    expected: int | None = Field(None, ge=1)
    """Samples of a step; null takes the largest step so far."""

    _largest: float | None = PrivateAttr(default=None)

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> Mapping[str, float]:
        if self._largest is None:
            self._largest = max((_whole(each) for each in history), default=0.0)
        self._largest = max(self._largest, _whole(record))
        usual, rows = float(self.expected or self._largest), _rows(record)
        if not rows or rows >= usual:
            return {}
        cut = self._cut_short(record.step, history[-LOOK_BACK + 1 :])
        return {MISSING: usual - rows, "batch/truncated": float(cut)}

    def _cut_short(self, step: int, history: Sequence[StepRecord]) -> bool:
        """Whether short steps are others than the last ones of epochs, which come evenly."""
        short = [each.step for each in history if MISSING in each.metrics] + [step]
        if self.expected is None and len(short) > (len(history) + 1) / 2:
            return False  # the largest was the exception: batches of any size are meant
        gaps = [later - earlier for earlier, later in pairwise(short)]
        return 1 in gaps or len(set(gaps)) > 1


def _rows(record: StepRecord) -> float:
    return record.metrics.get("batch/rows", float(record.batch_size))


def _whole(record: StepRecord) -> float:
    """Return the rows of a step if they are its samples; else they may be time steps."""
    rows = _rows(record)
    return rows if rows == record.batch_size else 0.0
