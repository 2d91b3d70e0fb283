"""The second opinion: what the step records and the settings suggest before anything is replayed.

Replays show what cures; the records show what was unusual. Where two such different opinions agree,
the verdict is rarely wrong. These rules look at nothing but the run itself, and say when nothing
in it speaks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stabexp.detectors.onset import ABNORMAL, loss_z
from stabexp.detectors.robust import finite, noise
from stabexp.records import Cause, Divergence, StepRecord

VIEW = 64
"""Steps up to the onset that are looked at."""
EARLY = 50
"""An onset before this step falls into the time a warmup covers."""
HEAVY_TAIL = 8.0
"""Largest ÷ median gradient norm above which rare steps are out of proportion."""
LOOSE_CLIP = 20.0
"""A clip norm above this many times the median norm does nothing in normal steps."""
SMALL_BATCH = 8
NOISY = 0.3
"""Noise of the loss from step to step, as a share of its level, that a small batch explains."""
LARGE_UPDATE = 1e-2
"""Update ratio ten times that of healthy training (about 1e-3)."""
RISEN = 1.5
"""Rate ÷ earlier rate above which a schedule can have caused it."""
WILD = 2.5
"""First loss ÷ that of guessing above which the initial outputs are wild."""
JUMPED = 3.0
"""Update ratio ÷ its usual value above which something happened to the optimizer."""
SHRUNK = 0.6
"""Share of the parameters' first norm below which weight decay has eaten them."""
JUST_BEFORE = 5
"""Steps before the onset in which a jump of the rate can have caused it."""


def opinion(
    records: Sequence[StepRecord], divergence: Divergence, settings: Mapping[str, Any]
) -> tuple[Cause, str]:
    """Return the most plausible cause and the reason with its figures.

    Args:
        records: The run's steps, oldest first, up to the detection at least.
        divergence: What was detected.
        settings: As configured, any of: warmup_steps, clip_norm (None for no clipping), precision
            ("fp32", "fp16", "bf16", …), batch_size, lr, weight_decay, trivial_loss (what guessing
            scores). A rule whose setting is missing is silent.
    """
    until = [record for record in records if record.step <= divergence.detected]
    healthy = [record for record in until if record.step < divergence.onset][-VIEW:]
    event = [record for record in until if record.step >= divergence.onset]
    for found in (
        _initialisation(until, settings),
        _precision(until, healthy, event, settings),
        _schedule(healthy, event),
        _optimizer_state(healthy, event),
        _weight_decay(until, settings),
        _batch_size(healthy, settings),
        _out_of_nowhere(healthy, event, settings),
        _warmup(divergence, settings),
        _clip_norm(healthy, event, settings),
        _learning_rate(divergence, healthy, event),
    ):
        if found is not None:
            return found
    reason = f"{len(healthy)} healthy steps in view and none of their figures is unusual"
    return "inconclusive", reason


def _initialisation(
    until: Sequence[StepRecord], settings: Mapping[str, Any]
) -> tuple[Cause, str] | None:
    guess = settings.get("trivial_loss")
    if guess is None or not until or until[0].step != 0:
        return None
    first = until[0].loss
    if first <= WILD * guess + 1.0:
        return None
    return "initialisation", f"the first loss is {first:.3g} where guessing scores {guess:.3g}"


def _precision(
    until: Sequence[StepRecord],
    healthy: Sequence[StepRecord],
    event: Sequence[StepRecord],
    settings: Mapping[str, Any],
) -> tuple[Cause, str] | None:
    precision = str(settings.get("precision", "")).lower().removeprefix("pure_")
    if not precision.startswith(("fp16", "float16", "half", "16")):
        return None
    view = until[-VIEW:]
    skips = sum(record.skipped and not _finite_gradient(record) for record in view)
    if len(view) >= 10 and skips > 0.2 * len(view):
        reason = f"{skips} of the last {len(view)} updates were skipped for overflow in {precision}"
        return "precision", reason
    first = next((i for i, r in enumerate(event) if not _finite(r)), None)
    if first is None:
        return None
    steps = [*healthy, *event[:first]]
    if any(loss_z(steps, i) > ABNORMAL for i in range(len(healthy), len(steps))):
        return None  # the loss was rising before: the overflow is the end of something else
    reason = (
        f"step {event[first].step} was the first with a non-finite value, in {precision}, and the "
        "loss had not risen before it"
    )
    return "precision", reason


def _batch_size(
    healthy: Sequence[StepRecord], settings: Mapping[str, Any]
) -> tuple[Cause, str] | None:
    batch = settings.get("batch_size")
    losses = finite(record.loss for record in healthy)
    if batch is None or batch > SMALL_BATCH or len(losses) < 8:
        return None
    level, spread = abs(median(losses)), noise(losses)
    if spread <= NOISY * level:
        return None
    return "batch_size", (
        f"batches of {batch} and a loss that changes by {spread:.3g} from step to step at a level "
        f"of {level:.3g}"
    )


def _schedule(
    healthy: Sequence[StepRecord], event: Sequence[StepRecord]
) -> tuple[Cause, str] | None:
    # the update of a healthy step does its harm in the next loss, so the jump may come just before
    calm = healthy[:-JUST_BEFORE]
    if len(calm) < 2 * JUST_BEFORE or not event:
        return None
    usual, now = max(record.lr for record in calm), event[0].lr
    if not now > RISEN * usual > 0:
        return None
    return "schedule", f"the rate jumped from {usual:.3g} to {now:.3g} just before the onset"


def _optimizer_state(
    healthy: Sequence[StepRecord], event: Sequence[StepRecord]
) -> tuple[Cause, str] | None:
    before = healthy[:-2]
    ratios = finite(r.update_ratio for r in before if r.update_ratio > 0)
    norms = finite(r.grad_norm for r in before)
    if len(ratios) < 8 or len(norms) < 8:
        return None
    for record in [*healthy[-2:], *event[:2]]:
        jump = record.update_ratio / median(ratios)
        grown = max(1.0, record.grad_norm / median(norms))
        if math.isfinite(jump) and jump > JUMPED * grown:
            return "optimizer_state", (
                f"the update of step {record.step} was {jump:.3g} times the usual one while the "
                "gradient was not"
            )
    return None


def _weight_decay(
    until: Sequence[StepRecord], settings: Mapping[str, Any]
) -> tuple[Cause, str] | None:
    norms = finite(record.param_norm for record in until)
    decay = settings.get("weight_decay") or 0.0
    if not decay or len(norms) < 8 or min(norms) >= SHRUNK * norms[0]:
        return None
    return "weight_decay", (
        f"the parameters' norm fell from {norms[0]:.3g} to {min(norms):.3g} at a weight decay of "
        f"{decay:g}"
    )


def _out_of_nowhere(
    healthy: Sequence[StepRecord], event: Sequence[StepRecord], settings: Mapping[str, Any]
) -> tuple[Cause, str] | None:
    """One step was fine and the next is not: a sample, or an operation that met its limit."""
    norms = finite(record.grad_norm for record in healthy)
    if len(norms) < 8 or not event or max(norms) > HEAVY_TAIL * median(norms):
        return None
    first = event[0]
    full = not str(settings.get("precision", "fp32")).startswith(("fp16", "bf16", "pure"))
    if full and not (_finite(first) and _finite_gradient(first)):
        return "implementation", (
            f"step {first.step} was the first with a non-finite value, and nothing had grown"
        )
    grown = first.grad_norm / median(norms)
    if grown > HEAVY_TAIL and loss_z([*healthy, first], len(healthy)) > 2 * ABNORMAL:
        return "data", (
            f"loss and gradient of step {first.step} stand out at once, the gradient norm at "
            f"{grown:.3g} times its median, after {len(norms)} calm steps"
        )
    return None


def _warmup(divergence: Divergence, settings: Mapping[str, Any]) -> tuple[Cause, str] | None:
    if settings.get("warmup_steps", 1) or divergence.onset >= EARLY:
        return None
    return "warmup", f"no warmup, and the first abnormal step was step {divergence.onset}"


def _clip_norm(
    healthy: Sequence[StepRecord], event: Sequence[StepRecord], settings: Mapping[str, Any]
) -> tuple[Cause, str] | None:
    steps = [*healthy, *event[:1]]
    if event and loss_z(steps, len(healthy)) > ABNORMAL:
        steps.pop()  # with a high loss the norm is large too, whatever the cause
    norms = finite(record.grad_norm for record in steps)
    if "clip_norm" not in settings or len(norms) < 8:
        return None
    usual, largest = median(norms), max(norms)
    clip = settings["clip_norm"]
    if usual <= 0 or largest <= HEAVY_TAIL * usual:
        return None
    if clip is not None and clip <= LOOSE_CLIP * usual:
        return None
    how = "no clipping" if clip is None else f"a clip norm of {clip:g}"
    return "clip_norm", (
        f"{how}, and a gradient norm of {largest:.3g} up to the onset, {largest / usual:.0f} times "
        f"the median of {usual:.3g}"
    )


def _learning_rate(
    divergence: Divergence, healthy: Sequence[StepRecord], event: Sequence[StepRecord]
) -> tuple[Cause, str] | None:
    if healthy and event:
        before, at = healthy[0].lr, event[0].lr
        if at > RISEN * before > 0:
            return "learning_rate", f"the rate had risen from {before:.3g} to {at:.3g} at the onset"
    if divergence.pattern in {"exponential_growth", "oscillating_divergence"}:
        shape = divergence.pattern.replace("_", " ")
        return "learning_rate", f"{shape} of the loss, and nothing else was unusual"
    ratios = finite(record.update_ratio for record in healthy)
    if len(ratios) >= 8 and median(ratios) > LARGE_UPDATE:
        return "learning_rate", (
            f"one update moved the parameters by {median(ratios):.2%} already in healthy steps"
        )
    return None


def _finite_gradient(record: StepRecord) -> bool:
    return not record.nonfinite_grads and math.isfinite(record.grad_norm)


def _finite(record: StepRecord) -> bool:
    whole = not record.nonfinite_grads and not record.nonfinite_params
    return whole and math.isfinite(record.loss)
