"""Everything that the step records of a run show, as findings, the gravest first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from stabexp.detectors.robust import finite, untrained_loss
from stabexp.findings.finding import Check, Finding, Symptom
from stabexp.findings.gradients import degenerate, exploding, first_layers, vanishing
from stabexp.findings.likely import likely_causes
from stabexp.findings.limits import (
    EVERY,
    EXPLODING,
    LEAST,
    WINDOW,
    calm_until,
    healthy_before,
    limits_of,
)
from stabexp.findings.losses import RECENT, lost, not_decreasing, oscillating, overfitting
from stabexp.findings.non_finite import non_finite
from stabexp.findings.taxonomy import CHECKS, TAXONOMY
from stabexp.records import Divergence, StepRecord

GRAVITY: tuple[Symptom, ...] = (
    "explosion",
    "divergence",
    "non_finite",
    "not_decreasing",
    "exploding_gradient",
    "vanishing_gradient",
    "degenerate_layer",
    "oscillating",
    "overfitting",
)
"""What is told first."""
OF_THE_WHOLE = frozenset({"oscillating", "overfitting", "not_decreasing"})
"""Symptoms that are not a matter of single layers."""
CLIP_ABOVE = 4.0
"""Clip norm to try, as a multiple of the usual norm: healthy steps pass untouched."""


def findings_of(
    records: Sequence[StepRecord],
    *,
    divergence: Divergence | None = None,
    settings: Mapping[str, Any] | None = None,
    opinion: tuple[str, str] | None = None,
    run: str = "RUN_ID",
) -> tuple[Finding, ...]:
    """Return what a run's step records show, looking as a monitor would: every 50 steps.

    Args:
        records: All of them, oldest first.
        divergence: What the run's detectors found.
        settings: What is known of the configuration, as a diagnosis knows it.
        opinion: Cause and reason that the records suggest for the divergence.
        run: The run's name in commands, with options if it needs them.
    """
    known = dict(settings or {})
    onset = None if divergence is None else divergence.onset
    end = len(records)
    if divergence is not None:
        end = next((i for i, r in enumerate(records) if r.step > divergence.detected), end)
    seen = list(records[:end])
    found = _looked(seen, onset)
    for one in (
        not_decreasing(seen, known, divergence),
        overfitting(seen),
        non_finite(seen, known),
        degenerate([r for r in seen if onset is None or r.step < onset]),
        lost(seen, divergence, known) if divergence is not None else None,
    ):
        if one is not None:
            found[one.symptom] = one
    usual = limits_of(healthy_before(seen, end, calm_until(seen, onset))).usual
    ordered = sorted(found.values(), key=lambda finding: GRAVITY.index(finding.symptom))
    return tuple(_told(one, seen, onset, known, opinion, run, usual) for one in ordered)


def _looked(records: Sequence[StepRecord], onset: int | None) -> dict[Symptom, Finding]:
    """Return what shows in windows of 100 steps, looked at every 50 steps and at the end."""
    found: dict[Symptom, Finding] = {}
    untrained = untrained_loss(records) or 0.0 if records else 0.0
    calm = calm_until(records, onset)
    for end in sorted({*range(EVERY, len(records), EVERY), len(records)}):
        view = records[max(0, end - WINDOW) : end]
        if len(view) < LEAST:
            continue
        limits = limits_of(healthy_before(records, max(0, end - RECENT), calm))
        for one in (
            exploding(view, limits),
            vanishing(view, limits, untrained),
            oscillating(view, limits, untrained),
        ):
            if one is not None:
                before = found.get(one.symptom)
                first = one.first_step if before is None else before.first_step
                found[one.symptom] = replace(one, first_step=first)
    return found


def _told(
    finding: Finding,
    records: Sequence[StepRecord],
    onset: int | None,
    settings: Mapping[str, Any],
    opinion: tuple[str, str] | None,
    run: str,
    usual: float,
) -> Finding:
    """Return the finding with layers, causes in order, and the checks to make."""
    layered = finding.symptom not in OF_THE_WHOLE and any(record.layers for record in records)
    if layered and not finding.layers:
        begin = finding.first_step if onset is None else onset
        grows = finding.symptom != "vanishing_gradient"
        layers, told = first_layers(records, begin, grows=grows)
        finding = replace(finding, layers=layers, evidence=(*finding.evidence, f"layers: {told}"))
    about = opinion if onset is not None and finding.last_step >= onset else None
    likely = likely_causes(finding, records, settings, about)
    norms = finite(record.grad_norm for record in records)
    clip = CLIP_ABOVE * (usual if math.isfinite(usual) else median(norms) if norms else EXPLODING)
    words = {"run": run, "clip": f"{clip:.2g}"}
    checks = []
    for key in TAXONOMY[finding.symptom].priority:
        step = CHECKS[key]
        command = (step.after_a_crash if onset is not None else "") or step.command
        checks.append(Check(what=step.what.format(**words), command=command.format(**words)))
    return replace(finding, likely=likely, checks=tuple(checks))
