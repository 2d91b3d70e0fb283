"""What the losses alone show: no progress, swings, learning by heart, and how a run was lost.

Source rows A2, B1, C1, C4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Any

from stabexp.detectors.robust import finite, noise, untrained_loss
from stabexp.findings.finding import Finding, Symptom
from stabexp.findings.limits import LEAST, VARIATION, WINDOW, Limits
from stabexp.records import Divergence, StepRecord

RECENT = 20
"""Losses whose variation is judged."""
SHARE = 0.1
"""Share of the untrained model's loss that a swing must reach to matter: near zero none does."""
PROGRESS = 0.05
"""Share of its first level that a loss must have lost after a window to count as decreasing."""
NEAR_CHANCE = 0.95
"""Share of what guessing scores above which a model knows nothing."""
HELD_OUT = ("val", "eval", "test", "held")
"""Parts of names under which people log a loss on held-out data."""
ROSE, GAP = 1.2, 0.5
"""Overfitting: the held-out loss rose by this factor, the training loss is below this share."""
HUGE_WEIGHTS = 1e6


def oscillating(view: Sequence[StepRecord], limits: Limits, untrained: float) -> Finding | None:
    """Return a finding when the last 20 losses swing by more than this run's usual.

    Args:
        view: The window that is judged, oldest first.
        limits: What counts as a swing.
        untrained: |loss| of the untrained model; 0.0 where it is not known.
    """
    losses = [record.loss for record in view[-RECENT:]]
    if len(view) < LEAST or len(losses) < LEAST or len(finite(losses)) < len(losses):
        return None
    mean, spread = fmean(losses), pstdev(losses)
    variation = spread / abs(mean) if mean else math.inf
    trend = abs(median(losses[len(losses) // 2 :]) - median(losses[: len(losses) // 2]))
    swing = noise(losses)
    # A loss that only falls varies too, and many are as noisy as they are high.
    usual = max(limits.swing, limits.relative_swing * abs(mean))
    floor = max(usual, SHARE * untrained, trend)
    if variation <= VARIATION or swing <= floor:
        return None
    return Finding(
        symptom="oscillating",
        message=f"the last {len(losses)} losses vary by {variation:.2f} of their mean of "
        f"{mean:.4g}, limit {VARIATION:.2f}",
        first_step=view[-len(losses)].step,
        last_step=view[-1].step,
        evidence=(f"from one step to the next it changes by {swing:.3g}, limit {floor:.3g}",),
    )


def not_decreasing(
    records: Sequence[StepRecord], settings: Mapping[str, Any], divergence: Divergence | None
) -> Finding | None:
    """Return a finding when the loss is where it began, after a window of steps or more."""
    until = [r for r in records if divergence is None or r.step < divergence.onset]
    if divergence is not None and divergence.pattern == "plateau":
        return Finding(
            symptom="not_decreasing",
            message=divergence.message,
            first_step=divergence.onset,
            last_step=divergence.detected,
        )
    losses = finite(record.loss for record in until)
    if len(losses) < WINDOW:
        return None
    first, last = median(losses[:LEAST]), median(losses[-RECENT:])
    chance = settings.get("trivial_loss")
    if isinstance(chance, (int, float)) and last < NEAR_CHANCE * chance:
        return None  # it knows something: a training that goes on from there need not fall
    if first - last >= PROGRESS * abs(first):
        return None
    guessing = "" if chance is None else f"; guessing scores {chance:.4g}"
    return Finding(
        symptom="not_decreasing",
        message=f"after {len(losses)} steps the loss is {last:.4g}, where it began at "
        f"{first:.4g}{guessing}",
        first_step=records[0].step,
        last_step=until[-1].step,
    )


def overfitting(records: Sequence[StepRecord]) -> Finding | None:
    """Return a finding when a logged held-out loss rises while the training loss is far below."""
    names = (name for record in records for name in record.metrics)
    name = next((n for n in names if any(word in n.lower() for word in HELD_OUT)), None)
    if name is None:
        return None
    held = [(r.step, r.metrics[name]) for r in records if name in r.metrics]
    held = [(step, value) for step, value in held if math.isfinite(value)]
    train = finite(record.loss for record in records)
    if len(held) < 3 or not train:
        return None
    (turn, best), (end, last) = min(held, key=lambda point: point[1]), held[-1]
    fitted = median(train[-LEAST:])
    if last <= ROSE * best or fitted >= GAP * last:
        return None
    return Finding(
        symptom="overfitting",
        message=f"{name} fell to {best:.4g} at step {turn} and is {last:.4g} at step {end}, while "
        f"the training loss is {fitted:.4g}",
        first_step=turn,
        last_step=end,
    )


def lost(
    records: Sequence[StepRecord], divergence: Divergence, settings: Mapping[str, Any]
) -> Finding | None:
    """Return how a run was lost: an explosion, or a divergence; None for a run that never learned.

    An explosion comes within a few steps out of a normal descent, ends in NaN or Inf, and asks for
    the operation or the batch; a divergence climbs, and asks for the rate.
    """
    until = [record for record in records if record.step <= divergence.detected]
    if divergence.pattern == "plateau" or not until:
        return None
    sudden, gradual = _sudden(until, divergence, settings), _gradual(until, divergence, settings)
    climbs = divergence.pattern in {"exponential_growth", "oscillating_divergence"}
    kind: Symptom = "divergence" if climbs or (not sudden and gradual) else "explosion"
    return Finding(
        symptom=kind,
        message=f"{divergence.pattern.replace('_', ' ')}: {divergence.message}",
        first_step=divergence.onset,
        last_step=divergence.detected,
        evidence=(*sudden, *gradual) if kind == "explosion" else (*gradual, *sudden),
    )


def _sudden(
    until: Sequence[StepRecord], divergence: Divergence, settings: Mapping[str, Any]
) -> list[str]:
    signs = []
    if divergence.pattern == "sudden_jump":
        before = finite(r.loss for r in until if r.step < divergence.onset)[-RECENT:]
        if before:
            signs.append(f"the loss left {median(before):.4g} within a few steps")
    broken = next((r for r in until if _not_finite(r)), None)
    if broken is not None:
        signs.append(f"step {broken.step} is the first with NaN or Inf")
    half = str(settings.get("precision", "")).removeprefix("pure_").startswith(("fp16", "bf16"))
    skipped = [r.step for r in until if r.skipped and not math.isfinite(r.grad_norm)]
    if half and skipped:
        signs.append(f"gradients overflowed under {settings['precision']} in {len(skipped)} steps")
    large = next((r for r in until if r.param_norm > HUGE_WEIGHTS), None)
    if large is not None:
        signs.append(f"the weights' norm is {large.param_norm:.3g} at step {large.step}")
    return signs


def _gradual(
    until: Sequence[StepRecord], divergence: Divergence, settings: Mapping[str, Any]
) -> list[str]:
    signs = []
    top = max(finite(r.loss for r in until if r.step >= divergence.onset), default=math.nan)
    lowest = min(finite(r.loss for r in until), default=math.nan)
    steps = divergence.detected - divergence.onset
    if steps >= 3 and lowest > 0 and top > 2 * lowest:
        signs.append(f"the loss rose from {lowest:.4g} to {top:.4g} over {steps} steps")
    chance = settings.get("trivial_loss")
    end = median(finite(r.loss for r in until[-3:]) or [math.nan])
    if chance is not None and end > NEAR_CHANCE * chance:
        signs.append(
            f"it ends at {end:.4g}, at chance level or worse (guessing scores {chance:.4g})"
        )
    first = untrained_loss(until)
    if first is not None and end > 10 * max(first, 1e-12):
        signs.append(f"that is {end / first:.3g} times the untrained model's loss")
    return signs


def _not_finite(record: StepRecord) -> bool:
    if record.nonfinite_params or not math.isfinite(record.loss):
        return True
    return not record.skipped and (record.nonfinite_grads > 0 or math.isinf(record.grad_norm))
