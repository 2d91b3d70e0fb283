"""NaN and Inf, and what of the checklist for them the step records can answer.

A step that a gradient scaler skips is normal life: it probes for the largest scale that works.
Source rows A3, C4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stabexp.detectors.robust import finite
from stabexp.findings.finding import Finding
from stabexp.findings.gradients import NAMED
from stabexp.records import StepRecord

HALF = ("fp16", "bf16", "float16", "bfloat16", "half", "16")
LOOK_BACK = 20
SMALL_SCALE = 1.0
"""A loss scale at which scaling no longer helps small gradients."""


def non_finite(records: Sequence[StepRecord], settings: Mapping[str, Any]) -> Finding | None:
    """Return a finding on the first NaN or Inf that did harm, with the checklist answered."""
    at = next((i for i, record in enumerate(records) if _harmed(record)), None)
    if at is None:
        return None
    bad, before = records[at], list(records[max(0, at - LOOK_BACK) : at])
    layers = tuple(
        name
        for name, figures in (bad.layers or {}).items()
        if not math.isfinite(figures.get("grad_norm", 0.0))
    )
    return Finding(
        symptom="non_finite",
        message=f"step {bad.step} is the first with NaN or Inf in {_where(bad)}",
        first_step=bad.step,
        last_step=max(record.step for record in records if _harmed(record)),
        evidence=tuple(_checklist(bad, before, settings, layers)),
        layers=layers,
    )


def is_half(settings: Mapping[str, Any]) -> bool:
    """Return whether the run computes in half precision, as far as is known."""
    precision = str(settings.get("precision", "")).lower().removeprefix("pure_")
    return precision.startswith(HALF)


def rising(before: Sequence[StepRecord]) -> tuple[float, float] | None:
    """Return the usual and the last gradient norm when the norm had grown tenfold, else None."""
    norms = [norm for norm in finite(record.grad_norm for record in before) if norm > 0]
    if len(norms) < 5 or norms[-1] < 10 * median(norms[:-2]):
        return None
    return median(norms[:-2]), norms[-1]


def _harmed(record: StepRecord) -> bool:
    if record.nonfinite_params or math.isinf(record.param_norm) or not math.isfinite(record.loss):
        return True
    overflow = record.nonfinite_grads > 0 or math.isinf(record.grad_norm)
    return overflow and not record.skipped


def _where(record: StepRecord) -> str:
    places = []
    if not math.isfinite(record.loss):
        places.append("the loss")
    if record.nonfinite_grads or math.isinf(record.grad_norm):
        count = record.nonfinite_grads
        places.append(f"{count} parameters' gradients" if count else "the gradient norm")
    if record.nonfinite_params or math.isinf(record.param_norm):
        count = record.nonfinite_params
        places.append(f"{count} parameters" if count else "the weights' norm")
    return " and ".join(places) or "a figure of the step"


def _checklist(
    bad: StepRecord,
    before: Sequence[StepRecord],
    settings: Mapping[str, Any],
    layers: Sequence[str],
) -> list[str]:
    """Return the answers in the order in which they narrow it down."""
    told = []
    if not math.isfinite(bad.loss) and not bad.nonfinite_grads:
        told.append("the loss was not finite and the gradients were: no parameter led to it")
    elif math.isfinite(bad.loss):
        told.append(f"the loss was finite ({bad.loss:.4g}), so it was made on the way back")
    grown = rising(before)
    if grown is not None:
        told.append(f"the gradient norm had grown from {grown[0]:.3g} to {grown[1]:.3g} before it")
    elif len(before) >= 5:
        told.append("neither loss nor gradient norm had grown before it: it came out of nowhere")
    if layers:
        more = f" and {len(layers) - NAMED} more" if len(layers) > NAMED else ""
        told.append(f"gradients not finite in {', '.join(layers[:NAMED])}{more}")
    if is_half(settings):
        told.append(f"computed in {settings['precision']}, which overflows or underflows earlier")
    elif "precision" in settings:
        told.append(f"computed in {settings['precision']}: no number is lost to half precision")
    if bad.loss_scale is not None:
        low = ", at its floor" if bad.loss_scale <= SMALL_SCALE else ""
        told.append(f"the loss scale was {bad.loss_scale:g}{low}")
    if before and math.isfinite(bad.lr) and bad.lr > 1.5 * before[0].lr > 0:
        told.append(f"the rate had risen from {before[0].lr:.3g} to {bad.lr:.3g}")
    told.append("whether the batch itself held NaN is in no step log: `stabexp locate` looks")
    return told
