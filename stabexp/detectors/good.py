"""The last good checkpoint: late enough to replay quickly, early enough to hold no damage yet.

A checkpoint just before the alarm is often already damaged, so it must lie three steps before the
onset, and the five steps before it must have looked normal. Step 0 is always good: nothing has
happened yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from stabexp.detectors.onset import log_grad_z, loss_z
from stabexp.records import StepRecord

MARGIN = 3
"""Steps between the checkpoint and the onset."""
CALM = 5
"""Steps before the checkpoint that must look normal."""
UNUSUAL = 3.0
"""Robust deviations that do not look normal."""


def last_good_step(
    records: Sequence[StepRecord], onset: int, candidates: Sequence[int]
) -> int | None:
    """Return the latest candidate from which a replay starts undamaged, None when there is none.

    A falling loss is no damage, so only its rise counts; the gradient norm counts both ways.

    Args:
        records: The run's steps, oldest first. A candidate whose steps are not in view passes.
        onset: First step that looked wrong.
        candidates: Steps of finite checkpoints, in any order; a checkpoint of step c is the state
            just before step c runs.
    """
    steps = list(records)
    places = {record.step: index for index, record in enumerate(steps)}
    for candidate in sorted(candidates, reverse=True):
        if candidate == 0:
            return 0
        if candidate > onset - MARGIN:
            continue
        last = (places[s] for s in range(candidate - CALM, candidate) if s in places)
        if not any(_unusual(steps, index) for index in last):
            return candidate
    return None


def _unusual(steps: Sequence[StepRecord], index: int) -> bool:
    return loss_z(steps, index) > UNUSUAL or abs(log_grad_z(steps, index)) > UNUSUAL
