"""Gradients that explode or vanish, and layers that no longer learn, each with the layer's name.

Row A6's absolute figures (a norm above 100, or below 1e-8 and not zero) and those of C4 fit one
model and not the next, so a figure is compared with what the same layer did while the run was well.
Source rows A6, A7, B2, B3, C4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from stabexp.detectors.robust import finite
from stabexp.findings.finding import Finding
from stabexp.findings.limits import DEGENERATE, LEAST, Limits
from stabexp.records import StepRecord

EXPLODED_IN = 5
"""Latest norms of which one must have exploded."""
VANISHED_IN = 10
"""Latest norms that must all have vanished."""
DEAD_IN = 20
"""Latest norms of a layer that must all be next to nothing; at least `DEAD_LEAST` of them."""
DEAD_LEAST = 3
DEAD_SHARE = 1e-6
"""Share of the layer's own norm, and of the other layers', below which it is next to nothing."""
GREW = 10.0
"""A layer whose gradient is this many times its usual one has exploded."""
FELL = 1e-3
"""A layer whose gradient is below this share of its usual one has vanished."""
LEARNED = 0.1
"""Share of the untrained model's loss below which small gradients are a good sign."""
NAMED = 4
"""Layers that are named."""


def exploding(view: Sequence[StepRecord], limits: Limits) -> Finding | None:
    """Return a finding when one of the last five gradient norms is far beyond the usual one.

    A single large norm that clipping caught is what clipping is for: it is said, and no more.
    """
    last = [r for r in view[-EXPLODED_IN:] if r.grad_norm > limits.exploding]
    if len(view) < LEAST or not last:
        return None
    worst = max(last, key=lambda record: record.grad_norm)
    held = worst.clip_coefficient < 1
    usual = (
        f", {worst.grad_norm / limits.usual:.3g} times the usual one" if limits.calibrated else ""
    )
    evidence = [f"limits from {limits.source}"]
    if worst.grad_norm > limits.alarm:
        evidence.insert(0, f"before clipping it is beyond {limits.alarm:,.0f}")
    if held:
        evidence.append(f"clipping scaled it by {worst.clip_coefficient:.3g}")
    return Finding(
        symptom="exploding_gradient",
        message=f"the gradient norm is {worst.grad_norm:.4g} at step {worst.step}, limit "
        f"{limits.exploding:.4g}{usual}",
        first_step=last[0].step,
        last_step=last[-1].step,
        evidence=tuple(evidence),
    )


def vanishing(view: Sequence[StepRecord], limits: Limits, untrained: float) -> Finding | None:
    """Return a finding when the last ten gradient norms are next to nothing and the loss is not."""
    last = view[-VANISHED_IN:]
    if len(last) < VANISHED_IN or not all(0 <= r.grad_norm < limits.vanishing for r in last):
        return None
    losses = finite(record.loss for record in last)
    if untrained and losses and abs(median(losses)) < LEARNED * untrained:
        return None  # learned to its end
    largest = max(record.grad_norm for record in last)
    level = f" at a loss of {median(losses):.4g}" if losses else ""
    return Finding(
        symptom="vanishing_gradient",
        message=f"the last {VANISHED_IN} gradient norms are all below {limits.vanishing:.3g}, "
        f"{largest:.3g} at most{level}",
        first_step=last[0].step,
        last_step=last[-1].step,
        evidence=(f"limits from {limits.source}",),
    )


def degenerate(records: Sequence[StepRecord]) -> Finding | None:
    """Return a finding on layers whose last gradient or weight norms are all next to nothing.

    Small is what is below 1e-6 of what the layer itself once had and of what the others have now;
    a layer that never had any is compared with the documents' 1e-6.
    """
    measured = [record for record in records if record.layers]
    last = measured[-DEAD_IN:]
    if len(last) < DEAD_LEAST:
        return None
    dead: list[tuple[str, str]] = []
    for layer in _layers(last):
        for kind, word in (("grad_norm", "gradient"), ("weight_norm", "weight")):
            values = [v for v in _values(last, layer, kind) if math.isfinite(v)]
            if len(values) < DEAD_LEAST or len(values) < len(last):
                continue
            once = max(finite(_values(measured, layer, kind)), default=0.0)
            others = [
                v
                for other in _layers(last)
                if other != layer
                for v in finite(_values(last, other, kind))
            ]
            limit = DEAD_SHARE * max(once, median(others)) if others else DEGENERATE
            if max(values) < (limit or DEGENERATE):
                dead.append((layer, f"{layer}: {word} norm {max(values):.3g} at most"))
                break
    if not dead:
        return None
    return Finding(
        symptom="degenerate_layer",
        message=f"{len(dead)} of {len(_layers(last))} layers do not learn: the last {len(last)} "
        "measured norms are all next to nothing",
        first_step=last[0].step,
        last_step=last[-1].step,
        evidence=tuple(text for _, text in dead[:NAMED]),
        layers=tuple(layer for layer, _ in dead),
    )


def first_layers(
    records: Sequence[StepRecord], onset: int, *, grows: bool
) -> tuple[tuple[str, ...], str]:
    """Return the layers whose gradient exploded, or vanished, first, and a sentence with figures.

    Args:
        records: Up to the step that is judged, oldest first.
        onset: First step that looked wrong; before it a layer was well.
        grows: Whether explosions are asked for, or vanishings.
    """
    measured = [record for record in records if record.layers]
    healthy = [r for r in measured if r.step < onset]
    after = [r for r in measured if r.step >= onset]
    if not measured:
        return (), "layers were not measured: add `monitors: {layers: {every: 1}}`"
    if not healthy:
        return (), f"no layer was measured before the onset at step {onset}"
    if not after:
        last = healthy[-1].step
        return (), (
            f"they were last measured at step {last}, before the onset at step {onset}; "
            "`stabexp locate` replays with every layer at every step"
        )
    usual = _usual(healthy)
    for record in after:
        found = _changed(record.layers or {}, usual, grows=grows)
        if found:
            name, ratio = found[0]
            times = "not finite" if math.isinf(ratio) else f"{ratio:.3g} times its usual one"
            more = f"; so are {len(found) - 1} more layers there" if len(found) > 1 else ""
            return tuple(n for n, _ in found), (
                f"first seen at step {record.step} in {name}: gradient {times}{more}"
            )
    return (), f"no layer's gradient is out of its range from step {onset} on"


def _usual(healthy: Sequence[StepRecord]) -> dict[str, float]:
    usual = {}
    for layer in _layers(healthy):
        norms = [v for v in finite(_values(healthy[-LEAST:], layer, "grad_norm")) if v > 0]
        if norms:
            usual[layer] = median(norms)
    return usual


def _changed(
    layers: Mapping[str, Mapping[str, float]], usual: Mapping[str, float], *, grows: bool
) -> list[tuple[str, float]]:
    """Return layers and their ratios, the most changed first."""
    found = []
    for layer, figures in layers.items():
        norm = figures.get("grad_norm", math.nan)
        if layer not in usual or "grad_norm" not in figures:
            continue
        ratio = norm / usual[layer] if math.isfinite(norm) else math.inf
        if (grows and ratio > GREW) or (not grows and ratio < FELL):
            found.append((layer, ratio))
    return sorted(found, key=lambda item: -item[1] if grows else item[1])


def _layers(records: Sequence[StepRecord]) -> list[str]:
    """Return the names of all layers, in the model's order."""
    return list(dict.fromkeys(name for record in records for name in record.layers or {}))


def _values(records: Sequence[StepRecord], layer: str, kind: str) -> list[float]:
    return [
        figures[kind]
        for record in records
        if (figures := (record.layers or {}).get(layer)) is not None and kind in figures
    ]
