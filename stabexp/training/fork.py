"""A fork: the state just before a step of an earlier run, and the records that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stabexp.records import StepRecord


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Where a replay starts.

    The records before the fork are part of it: a windowed detector with an empty history would call
    a real divergence stable.
    """

    checkpoints: Path
    """Directory of the checkpoint store that holds the state."""
    step: int
    """The first step to replay."""
    records: Sequence[StepRecord] = ()
    """Records of the steps before `step`, oldest first."""
