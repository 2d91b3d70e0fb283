"""The gradient norms that pictures of layers are drawn from, taken out of step records."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from stabexp.records import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorms:
    """One kind of figure of every layer at every step that measured it."""

    layers: tuple[str, ...]
    """From the input to the output, as the model lists them."""
    steps: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]
    """Layer → its figure at each of the steps; NaN too where it was not measured."""
    absent: frozenset[tuple[str, int]]
    """(Layer, step) pairs that were not measured."""

    def of(self, layer: str, first: float, last: float) -> list[float]:
        """Return what was measured of a layer in the steps `first` to `last`, both included."""
        begin, end = bisect_left(self.steps, first), bisect_right(self.steps, last)
        values = self.values[layer][begin:end]
        if not self.absent:
            return list(values)
        steps = self.steps[begin:end]
        return [
            value
            for step, value in zip(steps, values, strict=True)
            if (layer, step) not in self.absent
        ]


def layer_norms(records: Sequence[StepRecord], kind: str = "grad_norm") -> LayerNorms | None:
    """Return one kind of figure of all layers, None when no step measured it."""
    measured = [r for r in records if r.layers and any(kind in v for v in r.layers.values())]
    if not measured:
        return None
    layers = tuple(
        dict.fromkeys(
            name for r in measured for name, figures in (r.layers or {}).items() if kind in figures
        )
    )
    absent = frozenset(
        (layer, r.step)
        for layer in layers
        for r in measured
        if kind not in (r.layers or {}).get(layer, {})
    )
    values = {
        layer: tuple((r.layers or {}).get(layer, {}).get(kind, math.nan) for r in measured)
        for layer in layers
    }
    steps = tuple(record.step for record in measured)
    return LayerNorms(layers=layers, steps=steps, values=values, absent=absent)


def middle(values: Sequence[float]) -> float:
    """Return the median of the finite values, NaN when there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else math.nan
