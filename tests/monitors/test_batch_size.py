"""Short batches, and the ends of epochs."""

from __future__ import annotations

import pytest
from monitors.records import seen

from stabexp.monitors.batch_size import BatchSize

EPOCH = [32] * 9 + [20]


@pytest.mark.parametrize(
    ("sizes", "expected", "truncated"),
    [
        pytest.param([32] * 60, None, False, id="all whole"),
        pytest.param(EPOCH * 6, None, False, id="the last of each epoch"),
        pytest.param([32, 32, 30, 29, 32], None, True, id="two in a row"),
        pytest.param([*EPOCH, *EPOCH, 32, 32, 31, 32], None, True, id="one in between"),
        pytest.param([32, 17, 8, 30, 11, 25, 19, 28], None, False, id="batches of any size"),
        pytest.param([31] * 5, 32, True, id="never as many as configured"),
    ],
)
def test_a_short_batch_is_told_from_the_end_of_an_epoch(sizes, expected, truncated):
    told = seen(BatchSize(expected=expected), batch_size=sizes)
    assert any(each.get("batch/truncated") for each in told) is truncated
    largest = expected or max(sizes)
    missing = [each.get("batch/missing", 0) for each in told]
    assert missing[4:] == [largest - size for size in sizes[4:]]


def test_rows_that_are_no_samples_are_not_counted():
    lengths = [{"batch/rows": float(length)} for length in (5, 7, 4, 6)]
    assert seen(BatchSize(), batch_size=[32] * 4, metrics=lengths) == lengths
