"""What the steps of a run say for or against a single cause, with the figures.

Each rule looks at the steps before a symptom and at those that show it, and is silent where it
knows too little. It is a sign and no proof: that takes replays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from stabexp.detectors.robust import finite, noise
from stabexp.findings.finding import Weight
from stabexp.findings.non_finite import is_half, rising
from stabexp.records import StepRecord

Word = tuple[Weight, str] | None
"""What a run says of a cause: for or against, and the figures."""

LARGE_UPDATE, SMALL_UPDATE, TINY_UPDATE = 1e-2, 1e-4, 1e-6
"""Share of the weights that one update moves: healthy is about 1e-3."""
FADED = 1e-4
"""Weakest ÷ strongest layer's gradient below which it has faded on its way back."""
FEW = 8
MANY = 64
HEAVY_TAIL = 8.0
EARLY = 50
RISEN = 1.5


def sign(
    name: str,
    before: Sequence[StepRecord],
    at: Sequence[StepRecord],
    settings: Mapping[str, Any],
) -> Word:
    """Return what a run says of a cause, None where it says nothing.

    Args:
        name: A key of `taxonomy.CAUSES`.
        before: Steps before the symptom, oldest first.
        at: Steps that show it.
        settings: What is known of the configuration.
    """
    rule = _RULES.get(name)
    return rule(before or at, at, settings) if rule is not None and (before or at) else None


def where_nothing_moves(steps: Sequence[StepRecord]) -> dict[str, Word]:
    """Return what updates of a healthy size, and gradients that arrive, say against."""
    found: dict[str, Word] = {}
    ratios = [ratio for ratio in finite(r.update_ratio for r in steps) if ratio > 0]
    if len(ratios) >= 8 and SMALL_UPDATE < (usual := median(ratios)) < LARGE_UPDATE:
        why = f"one update moves the weights by {usual:.2%}, which is healthy"
        found = {"learning_rate": ("against", why), "learning_rate_low": ("against", why)}
    layers = next((r.layers for r in reversed(steps) if r.layers), None)
    norms = [v["grad_norm"] for v in (layers or {}).values() if v.get("grad_norm", 0) > 0]
    if len(norms) >= 2:
        share = min(norms) / max(norms)
        side: Weight = "for" if share < FADED else "against"
        found["vanishing"] = (
            side,
            f"the weakest layer's gradient is {share:.2g} of the strongest's",
        )
    return found


def _learning_rate(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    ratios = [ratio for ratio in finite(r.update_ratio for r in before) if ratio > 0]
    if len(ratios) < 8:
        return None
    usual = median(ratios)
    if usual > LARGE_UPDATE:
        return "for", f"one update moves the weights by {usual:.1%}; about 0.1% is usual"
    if usual < TINY_UPDATE:
        return "against", f"one update moves the weights by {usual:.1e} of their size only"
    return None


def _learning_rate_low(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    word = _learning_rate(before, at, settings)
    turned: dict[Weight, Weight] = {"for": "against", "against": "for"}
    return None if word is None else (turned[word[0]], word[1])


def _schedule(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    rates = finite(r.lr for r in [*before, *at[:1]])
    if len(rates) < 8:
        return None
    if rates[-1] > RISEN * rates[0] > 0:
        return "for", f"the rate rose from {rates[0]:.3g} to {rates[-1]:.3g}"
    if max(rates) == min(rates):
        return "against", f"the rate was {rates[0]:.3g} all the time"
    return None


def _warmup(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    step = at[0].step if at else before[-1].step
    if settings.get("warmup_steps"):
        return "against", f"there is a warmup of {settings['warmup_steps']} steps"
    if step >= 10 * EARLY:
        return "against", f"it began at step {step}, long after any warmup"
    if "warmup_steps" in settings and step < EARLY:
        return "for", f"no warmup, and it began at step {step}"
    return None


def _batch_size(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    size = settings.get("batch_size")
    losses = finite(r.loss for r in before)
    if size is None or len(losses) < 8:
        return None
    level = abs(median(losses))
    if size >= MANY:
        return "against", f"{size} samples per update are not few"
    if size <= FEW and level and noise(losses) > 0.3 * level:
        return "for", f"{size} samples per update, whose losses differ by {noise(losses):.3g}"
    return None


def _clip_norm(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    norms = [norm for norm in finite(r.grad_norm for r in [*before, *at[:1]]) if norm > 0]
    if len(norms) < 8 or "clip_norm" not in settings:
        return None
    usual, largest, clip = median(norms), max(norms), settings["clip_norm"]
    if clip is not None and clip <= 3 * usual:
        return "against", f"clipped at {clip:g} already, where {usual:.3g} is usual"
    if largest > HEAVY_TAIL * usual:
        how = "nothing clips" if clip is None else f"the clip norm {clip:g} is far above"
        return "for", f"{how} norms of up to {largest:.3g}, where {usual:.3g} is usual"
    return None


def _half(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    if "precision" not in settings:
        return None
    if not is_half(settings):
        return "against", f"it is computed in {settings['precision']}"
    skipped = sum(r.skipped for r in [*before, *at])
    if skipped > 0.2 * len([*before, *at]):
        return (
            "for",
            f"{skipped} of the last {len([*before, *at])} updates were skipped for overflow",
        )
    return None


def _underflow(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    word = _half(before, at, settings)
    if word is not None and word[0] == "against":
        return word
    zeros = finite(r.metrics.get("half/zero_gradient_share", float("nan")) for r in before)
    if zeros and median(zeros) > 0.5:
        return "for", f"{median(zeros):.0%} of the gradients are exactly zero"
    return None


def _loss_function(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    if len(before) < 5:
        return None
    grown = rising(before)
    if grown is not None:
        return (
            "against",
            f"the gradient norm had grown from {grown[0]:.3g} to {grown[1]:.3g} before",
        )
    if all(math.isfinite(r.loss) and math.isfinite(r.grad_norm) for r in at[:3]):
        return None
    return "for", f"nothing had grown in the {len(before)} steps before the first NaN or Inf"


def _data(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    norms = [norm for norm in finite(r.grad_norm for r in before) if norm > 0]
    if len(norms) < 8 or not at or max(norms[-5:]) > HEAVY_TAIL * median(norms):
        return None
    losses, loss, norm = finite(r.loss for r in before), at[0].loss, at[0].grad_norm
    if norm > HEAVY_TAIL * median(norms) and loss > median(losses) + 8 * noise(losses):
        times = norm / median(norms)
        return "for", f"loss and gradient (×{times:.3g}) of step {at[0].step} stand out at once"
    return None


def _weight_decay(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    norms = finite(r.param_norm for r in before)
    if not settings.get("weight_decay", 1):
        return "against", "there is none"
    if len(norms) >= 8 and norms[-1] < 0.6 * norms[0]:
        return "for", f"the weights' norm fell from {norms[0]:.3g} to {norms[-1]:.3g}"
    return None


def _initialisation(
    before: Sequence[StepRecord], at: Sequence[StepRecord], settings: Mapping[str, Any]
) -> Word:
    guess = settings.get("trivial_loss")
    first = before[0]
    if guess is None or first.step != 0:
        return None
    if first.loss > 2.5 * guess + 1:
        return "for", f"the first loss is {first.loss:.3g} where guessing scores {guess:.3g}"
    return "against", f"the first loss, {first.loss:.3g}, is about what guessing scores"


_RULES: Mapping[
    str, Callable[[Sequence[StepRecord], Sequence[StepRecord], Mapping[str, Any]], Word]
] = {
    "learning_rate": _learning_rate,
    "learning_rate_low": _learning_rate_low,
    "schedule": _schedule,
    "warmup": _warmup,
    "batch_size": _batch_size,
    "clip_norm": _clip_norm,
    "precision": _half,
    "underflow": _underflow,
    "loss_function": _loss_function,
    "data": _data,
    "weight_decay": _weight_decay,
    "initialisation": _initialisation,
}
