"""The history of a loss scale."""

from __future__ import annotations

from monitors.records import seen

from stabexp.monitors.loss_scale import LossScale


def test_overflows_are_counted_and_how_long_a_scale_held():
    scales = [16.0, 16.0, 8.0, 8.0, 4.0, 4.0]
    skipped = [False, True, False, True, False, False]
    told = seen(LossScale(), loss_scale=scales, skipped=skipped)
    assert [each["loss_scale/overflows"] for each in told] == [0, 1, 1, 2, 2, 2]
    assert [each["loss_scale/steps_held"] for each in told] == [0, 1, 0, 1, 0, 1]
    assert seen(LossScale(), loss_scale=[None]) == [{}]
