"""From a log to a diagnosis: read it, find the curves, judge them, say what would prove it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stabexp.detectors import Detector
from stabexp.detectors.divergence import RECENT
from stabexp.diagnosis.advice import UNPROVED, limits_of, opinion_of, what_next
from stabexp.diagnosis.curves import curves_of
from stabexp.diagnosis.judging import first_finding, judge_curves
from stabexp.diagnosis.log import Log
from stabexp.diagnosis.names import Quantity
from stabexp.diagnosis.result import Check, Diagnosis, UsedCurve
from stabexp.errors import ConfigError
from stabexp.findings import UNKNOWN, findings_of, questions_of
from stabexp.records import Divergence, StepRecord

BEFORE = 10
"""Points before the onset whose median the end is compared with."""


def diagnose_log(
    log: Log,
    source: str,
    *,
    chosen: Mapping[Quantity, str],
    detectors: Sequence[Detector],
    settings: Mapping[str, Any],
) -> Diagnosis:
    """Return what a log says of its run.

    Args:
        log: As a reader returned it.
        source: What the user called it.
        chosen: Quantity → the curve's name, where the user said so.
        detectors: In order of precedence.
        settings: What the user knows of the configuration, before what the log says of it.

    Raises:
        ConfigError: If it has no training loss, or too few points of it.
    """
    curves = curves_of(log, source, chosen)
    found, records, checks, odd = judge_curves(curves, detectors)
    scaled = {"precision": "fp16"} if "loss_scale" in curves.found else {}
    known = {**scaled, **curves.settings, **settings}
    next_step, next_command = what_next(curves, diverged=found is not None)
    losses = curves.loss.points
    view = (
        opinion_of(records, found, known, limits_of(curves, known), interval=curves.interval)
        if found
        else None
    )
    return Diagnosis(
        source=source,
        format=curves.format,
        status="healthy" if found is None else "diverged",
        divergence=found,
        onset_between=None if found is None else _between(list(losses), found.onset),
        recovered=found is not None and _recovered(losses, found),
        first_step=min(losses),
        last_step=max(losses),
        interval=curves.interval,
        first_loss=next(iter(losses.values())),
        last_loss=_end(losses),
        used=tuple(
            UsedCurve(quantity=quantity, name=curve.name, points=len(curve.points))
            for quantity, curve in curves.found.items()
        ),
        not_used=tuple(curves.others),
        warnings=(*curves.warnings, *odd),
        checks=checks,
        settings=known,
        opinion=view,
        run_id=curves.recorded_by,
        next_step=next_step,
        next_command=next_command,
        findings=findings_of(
            records,
            divergence=found,
            settings=known,
            opinion=None if view is None else (view.cause, view.reason),
            run=curves.recorded_by or "RUN_ID",
        ),
        questions=questions_of(records, found, known, checkpoint=UNKNOWN) if found else (),
    )


def diagnose_records(
    records: Sequence[StepRecord],
    source: str,
    *,
    detectors: Sequence[Detector],
    settings: Mapping[str, Any],
    next_steps: Mapping[bool, tuple[str, str]],
    warnings: Sequence[str] = (),
    checkpoint: int | None = None,
    run: str = "",
    told: Sequence[str] = (),
) -> Diagnosis:
    """Return what a run that stabexp recorded says, from every step of it.

    Args:
        records: All of them, oldest first.
        source: What the user called it.
        detectors: The run's own, so that the answer is the live one.
        settings: Its configuration.
        next_steps: Whether it diverged → what would prove the cause, and the command for it.
        warnings: What the user should know beside.
        checkpoint: Step of the last good checkpoint, None when there is none.
        run: The run in commands, with the options it needs.
        told: What monitors and stabilisers said while it trained.

    Raises:
        ConfigError: If it has no steps.
    """
    if not records:
        raise ConfigError(f"{source}: has no steps yet; nothing can be said of it")
    found = first_finding(detectors, records, first_step=records[0].step)
    losses = {record.step: record.loss for record in records}
    next_step, next_command = next_steps[found is not None]
    known = {
        name: value for name, value in settings.items() if value is not None or name == "clip_norm"
    }
    view = opinion_of(records, found, known, [UNPROVED]) if found else None
    return Diagnosis(
        source=source,
        format="stabexp run",
        status="healthy" if found is None else "diverged",
        divergence=found,
        onset_between=None if found is None else (found.onset, found.onset),
        recovered=found is not None and _recovered(losses, found),
        first_step=records[0].step,
        last_step=records[-1].step,
        interval=1,
        first_loss=records[0].loss,
        last_loss=_end(losses),
        used=tuple(
            UsedCurve(quantity=name, name=name, points=len(records))
            for name in ("loss", "grad_norm", "lr", "update_ratio", "param_norm")
        ),
        not_used=(),
        warnings=tuple(warnings),
        checks=tuple(Check(detector=detector.name, judged=True) for detector in detectors),
        settings=known,
        opinion=view,
        run_id=source,
        next_step=next_step,
        next_command=next_command,
        findings=findings_of(
            records,
            divergence=found,
            settings=known,
            opinion=None if view is None else (view.cause, view.reason),
            run=run or source,
        ),
        questions=questions_of(records, found, known, checkpoint=checkpoint, run=run or source)
        if found
        else (),
        told=tuple(told),
    )


def _between(steps: Sequence[int], onset: int) -> tuple[int, int]:
    """Return the first and last step at which what shows at `onset` can have begun."""
    before = [step for step in steps if step < onset]
    return (before[-1] + 1 if before else min(0, onset), onset)


def _end(losses: Mapping[int, float]) -> float:
    last = [loss for loss in list(losses.values())[-RECENT:] if math.isfinite(loss)]
    return median(last) if 2 * len(last) > min(RECENT, len(losses)) else math.nan


def _recovered(losses: Mapping[int, float], found: Divergence) -> bool:
    """Return whether the loss ends no higher than it was before the onset."""
    before = [loss for step, loss in losses.items() if step < found.onset and math.isfinite(loss)][
        -BEFORE:
    ]
    after = sum(step > found.detected for step in losses)
    return bool(before) and after >= RECENT and _end(losses) <= median(before)
