"""The onset is the first step that looked wrong, walking back from where a detector was sure.

A step looks wrong when its loss, gradient norm or update ratio lies more than 3.5 robust deviations
above the 32 steps before it. Two normal steps in between are forgiven. A slow rise drags its own
baseline along, so the loss is also compared with the best stretch in view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from stabexp.detectors.robust import centre_and_spread, finite
from stabexp.records import StepRecord

BASELINE = 32
"""Steps before a step that say what is normal for it."""
ABNORMAL = 3.5
"""Robust deviations above the baseline."""
GAP = 2
"""Normal steps forgiven between two abnormal ones."""
EARLY = 8
"""With no more steps than this there is no healthy baseline."""
VIEW = 256
"""How far back the best stretch is looked for."""


def find_onset(records: Sequence[StepRecord], detected: int) -> int:
    """Return the first step of the unbroken run of abnormal steps that ends at `detected`.

    `detected` itself when nothing before it looks wrong; the first step in view when there is no
    healthy step to compare with.

    Raises:
        ValueError: If no record is as old as `detected`.
    """
    steps = [record for record in records if record.step <= detected]
    if not steps:
        raise ValueError(f"no record at or before step {detected}; pass the steps that led to it")
    best = _best_stretch([record.loss for record in steps[-VIEW:]], offset=len(steps[-VIEW:]))
    start = None
    gap = 0
    for back, index in enumerate(range(len(steps) - 1, -1, -1), start=1):
        rise = max(loss_z(steps, index), log_grad_z(steps, index), log_update_z(steps, index))
        if best is not None and back <= best[2]:
            rise = max(rise, _z(steps[index].loss, best[0], best[1]))
        if rise > ABNORMAL:
            start, gap = index, 0
        else:
            gap += 1
            if gap > GAP:
                break
    if start is None:
        return steps[0].step if len(steps) <= EARLY else steps[-1].step
    return steps[start].step


def loss_z(steps: Sequence[StepRecord], index: int) -> float:
    """Return how many robust deviations the loss at `index` lies above the steps before it.

    +Inf for a loss that is not finite; 0.0 with fewer than two steps to compare with.
    """
    value = steps[index].loss
    if not math.isfinite(value):
        return math.inf
    before = finite(step.loss for step in steps[max(0, index - BASELINE) : index])
    if len(before) < 2:
        return 0.0
    centre, spread = centre_and_spread(before)
    return _z(value, centre, max(spread, _least(centre, len(before))))


def log_grad_z(steps: Sequence[StepRecord], index: int) -> float:
    """Return the same for the logarithm of the gradient norm, 0.0 where it was not recorded."""
    before = [step.grad_norm for step in steps[max(0, index - BASELINE) : index]]
    return _log_z(steps[index].grad_norm, before)


def log_update_z(steps: Sequence[StepRecord], index: int) -> float:
    """Return the same for the logarithm of the update ratio, 0.0 where it was not recorded."""
    before = [step.update_ratio for step in steps[max(0, index - BASELINE) : index]]
    return _log_z(steps[index].update_ratio, before)


def _log_z(value: float, before: Sequence[float]) -> float:
    logs = [_log(norm) for norm in finite(before)]
    if not math.isfinite(value):
        return math.inf if logs or math.isinf(value) else 0.0
    if len(logs) < 2:
        return 0.0
    centre, spread = centre_and_spread(logs)
    return _z(_log(value), centre, max(spread, 0.05, 1.5 / len(logs)))


def _log(norm: float) -> float:
    return math.log(max(norm, 1e-30))  # an update that was skipped has the ratio 0


def _z(value: float, centre: float, spread: float) -> float:
    return (value - centre) / spread if math.isfinite(value) else math.inf


def _least(centre: float, count: int) -> float:
    """Return the smallest spread to believe in: 1 % of the level, more when few steps are known."""
    return max(abs(centre) * max(0.01, 0.3 / count), 1e-12)


def _best_stretch(losses: Sequence[float], *, offset: int) -> tuple[float, float, int] | None:
    """Return level, spread and steps after the stretch of 32 losses with the lowest median."""
    best: tuple[float, float, int] | None = None
    for end in range(len(losses), BASELINE - 1, -BASELINE // 4):
        values = finite(losses[end - BASELINE : end])
        if len(values) >= BASELINE // 2 and (best is None or median(values) < best[0]):
            centre, spread = centre_and_spread(values)
            best = (centre, max(spread, _least(centre, len(values))), offset - end)
    return best
