"""Memory in use and samples per second, every few steps.

Memory that grows over hundreds of steps is a graph that somebody keeps; a run that slows down is
often the loader's.
Source row B14.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from pydantic import Field

from stabexp.monitors.base import Monitor
from stabexp.records import StepRecord

STEPS = 20
"""Steps that the speed is averaged over."""

_MIB = 2.0**20


class Resources(Monitor):
    """Resident memory and peak GPU memory (MiB), samples per second over the last 20 steps."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> Mapping[str, float]:
        found: dict[str, float] = {}
        if (resident := resident_bytes()) is not None:
            found["memory/resident_mib"] = resident / _MIB
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            found["memory/cuda_peak_mib"] = torch.cuda.max_memory_allocated() / _MIB
        latest = [*history[-(STEPS - 1) :], record]
        seconds = sum(each.seconds for each in latest)
        samples = sum(each.batch_size for each in latest)
        if seconds > 0 and samples:
            found["speed/samples_per_second"] = samples / seconds
        return found


def resident_bytes() -> int | None:
    """Return the physical memory of this process, None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None
