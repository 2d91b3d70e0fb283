"""Curves are judged step by step with what was known at that step, as if the run were live.

A detector that needs a curve which is written more rarely than the loss is asked at that curve's
own steps. A log that ends in a NaN is judged by what there is: no later step can show that it was
only one bad batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stabexp.detectors import Detector, history_needed, judge
from stabexp.detectors.divergence import BLOCK, RECENT
from stabexp.detectors.gradient_explosion import GradientExplosion
from stabexp.detectors.non_finite import NonFinite
from stabexp.diagnosis.curves import Curves
from stabexp.diagnosis.result import Check
from stabexp.diagnosis.step_records import step_records
from stabexp.errors import ConfigError
from stabexp.records import Divergence, StepRecord

LIVE_WINDOW = 100
"""Steps a live run keeps at least; the onset is looked for in them."""
SHORTEST = RECENT + 1
"""Points of the loss with which a divergence can be told from one hard batch."""


def judge_curves(
    curves: Curves, detectors: Sequence[Detector]
) -> tuple[Divergence | None, list[StepRecord], tuple[Check, ...], list[str]]:
    """Return what was found first, the records it was found in, what was checked, and warnings.

    Raises:
        ConfigError: If there are too few points to say anything.
    """
    checks = tuple(_check(detector, curves) for detector in detectors)
    judging = [d for d, check in zip(detectors, checks, strict=True) if check.judged]
    axis = list(curves.loss.points)
    records = step_records(curves, axis)
    norms = list(curves.found["grad_norm"].points) if "grad_norm" in curves.found else axis
    apart = [d for d in judging if isinstance(d, GradientExplosion) and norms != axis]
    found = first_finding([d for d in judging if d not in apart], records, first_step=axis[0])
    warnings: list[str] = []
    if apart:
        # before the first loss there is no step to speak of
        norms = [step for step in norms if step >= axis[0]]
        other = first_finding(apart, step_records(curves, norms), first_step=axis[0])
        if other is not None and (found is None or other.detected < found.detected):
            found = other
    if found is None and any(isinstance(d, NonFinite) for d in judging):
        found, warnings = _ends_in_nan(records)
    if found is None and len(axis) < SHORTEST:
        raise ConfigError(
            f"{curves.source}: too short: {len(axis)} point(s) of {curves.loss.name!r}, and at "
            f"least {SHORTEST} are needed to tell a divergence from one hard batch"
        )
    return found, records, checks, warnings


def first_finding(
    detectors: Sequence[Detector], records: Sequence[StepRecord], *, first_step: int
) -> Divergence | None:
    """Return the first finding, asking after every step as a live run does.

    Args:
        detectors: In order of precedence.
        records: The first may be numbered 0 for what comes later.
        first_step: Its number in the log.
    """
    if not detectors:
        return None
    window = max(history_needed(detectors), LIVE_WINDOW)
    history: list[StepRecord] = []
    for index, record in enumerate(records):
        history.append(record)
        if len(history) > 2 * window:
            del history[1:-window]
        found = judge(detectors, history if index else [replace(record, step=first_step)])
        if found is not None:
            starts = index > 0 and found.onset == records[0].step
            return replace(found, onset=first_step) if starts else found
    return None


def _ends_in_nan(records: Sequence[StepRecord]) -> tuple[Divergence | None, list[str]]:
    last = 0
    while last < len(records) and not math.isfinite(records[-1 - last].loss):
        last += 1
    if not last:
        return None, []
    found = judge([NonFinite(patience=last)], records)
    return found, [
        f"the log ends in {last} point(s) without a finite loss; no later step shows that it was "
        "one bad batch, so it counts as a divergence"
    ]


def _check(detector: Detector, curves: Curves) -> Check:
    points = len(curves.loss.points)
    note, judged = "", True
    if isinstance(detector, GradientExplosion):
        norm = curves.found.get("grad_norm")
        if norm is None:
            judged, note = False, "the log has no gradient norm"
        elif curves.clipped:
            judged, note = False, "the gradient norm was recorded after clipping"
        elif len(norm.points) <= detector.patience:
            judged, note = False, f"only {len(norm.points)} gradient norm(s)"
    elif isinstance(detector, NonFinite):
        seen = "loss and gradient norm" if "grad_norm" in curves.found else "the loss"
        note = f"seen in {seen} only"
    elif detector.name == "divergence":
        if points < BLOCK + RECENT:
            note = f"{points} points: only a rise far above the first loss shows"
    elif points < detector.history:
        judged, note = False, f"needs {detector.history} points of the loss, there are {points}"
    return Check(detector=detector.name, judged=judged, note=note)
