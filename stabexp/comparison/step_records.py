"""Two runs are the same as long as every figure of every step is, to the last bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from stabexp.comparison.result import RecordDifference
from stabexp.records import StepRecord

COMPARED = ("loss", "grad_norm", "update_ratio", "param_norm", "digest", "lr")
"""Fields in the order in which a difference is named."""


def first_differing_record(
    first: Sequence[StepRecord], second: Sequence[StepRecord]
) -> RecordDifference | None:
    """Return the first step that both recorded and whose figures differ in any bit.

    NaN is the same as NaN; 0.0 and -0.0 are not the same.
    """
    known = {record.step: record for record in first}
    for record in sorted(second, key=lambda record: record.step):
        before = known.get(record.step)
        if before is None:
            continue
        for field in COMPARED:
            a, b = getattr(before, field), getattr(record, field)
            if not _same(a, b):
                return RecordDifference(step=record.step, field=field, first=a, second=b)
    return None


def shared_steps(first: Sequence[StepRecord], second: Sequence[StepRecord]) -> int:
    """Return how many steps both recorded."""
    return len({record.step for record in first} & {record.step for record in second})


def _same(a: float | str, b: float | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    if math.isnan(a) and math.isnan(b):
        return True  # the step log keeps no payload of a NaN
    return struct.pack("=d", a) == struct.pack("=d", b)
