"""Memory and speed."""

from __future__ import annotations

import sys

import pytest
from monitors.records import seen

from stabexp.monitors.resources import Resources


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_is_kept_shows_and_speed_is_samples_over_seconds():
    before = seen(Resources(), batch_size=[8] * 30, seconds=[0.5] * 30)[-1]
    kept = bytearray(64 * 2**20)
    after = seen(Resources(), batch_size=[8], seconds=[0.5])[-1]
    assert after["memory/resident_mib"] - before["memory/resident_mib"] > 50 * (len(kept) > 0)
    assert before["speed/samples_per_second"] == 16.0
