"""Is this state healthy: numbers that are lost, weights beyond reason, and layers that stand out.

What is large depends on the layer, so where the run's first state is known a weight is compared
with what it was then, and a layer's growth with that of the others; the documents' |w| > 1e6 holds
besides.
Source rows A3, A4, B1, B2, B3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from stabexp.detectors.robust import centre_and_spread
from stabexp.findings.limits import ALARM, ENOUGH
from stabexp.records import StepRecord
from stabexp.records.tensors import TensorFigures

HUGE = 1e6
"""Absolute value of a weight that no model needs."""
ALONE = 1000.0
"""Largest ÷ typical absolute value of a weight tensor above which single elements are damaged."""
MANY = 64
"""Elements below which a tensor's typical value says little."""
UNLIKE, TIMES = 6.0, 10.0
"""A layer stands out when its growth is this many robust deviations, and this factor, off."""
FEW_LAYERS = 4
"""Layers below which none can stand out."""
NO_VARIANCE = 1e-12
"""Running variance of a normalisation below which it has seen only equal values."""

Kind = Literal[
    "non_finite", "extreme", "lone_value", "stands_out", "lost_layer", "second_moment", "variance",
    "gradient_norm",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """Something wrong with one tensor, or with the gradient norms."""

    kind: Kind
    name: str
    message: str
    """One sentence with the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a model and its optimizer, examined without running anything."""

    source: str
    step: int | None
    """Step that would run next; None for a file that does not say."""
    tensors: tuple[TensorFigures, ...]
    grown: Mapping[str, float]
    """Parameter → size now ÷ size in the run's first state; empty where that is not known."""
    ailments: tuple[Ailment, ...]
    """The gravest first."""

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.ailments


def examine(
    tensors: Sequence[TensorFigures],
    source: str,
    *,
    step: int | None = None,
    first: Sequence[TensorFigures] = (),
    records: Sequence[StepRecord] = (),
) -> Health:
    """Return what is wrong with a state.

    Args:
        tensors: All of it.
        source: What the user called it.
        step: Step that would run next from it.
        first: The same tensors in the run's first state.
        records: The run's steps up to this state, oldest first.
    """
    before = {tensor.name: tensor for tensor in first if tensor.part == "parameter"}
    grown = {
        tensor.name: tensor.size / before[tensor.name].size
        for tensor in tensors
        if tensor.part == "parameter" and tensor.name in before and before[tensor.name].size > 0
    }
    found = [
        *_non_finite(tensors),
        *_of_weights(tensors, before),
        *_stand_out(tensors, grown),
        *_of_state(tensors),
        *_gradient_norms(records),
    ]
    return Health(
        source=source, step=step, tensors=tuple(tensors), grown=grown, ailments=tuple(found)
    )


def _non_finite(tensors: Iterable[TensorFigures]) -> list[Ailment]:
    found = []
    for tensor in tensors:
        lost = tensor.nans + tensor.infs
        if not lost:
            continue
        words = [f"{tensor.nans} NaN" if tensor.nans else "", f"{tensor.infs} Inf"]
        told = " and ".join(word for word in words if word and not word.startswith("0"))
        found.append(
            Ailment(
                kind="non_finite",
                name=tensor.name,
                message=f"{tensor.part}: {told} among {tensor.count:,} values",
            )
        )
    return found


def _of_weights(
    tensors: Iterable[TensorFigures], before: Mapping[str, TensorFigures]
) -> list[Ailment]:
    found = []
    for tensor in tensors:
        if tensor.part != "parameter" or math.isnan(tensor.largest):
            continue
        then = before.get(tensor.name)
        if tensor.largest > HUGE:
            was = f", {then.largest:.3g} in the first state" if then is not None else ""
            message = f"largest weight {tensor.largest:.3g}, limit {HUGE:.0e}{was}"
            found.append(Ailment(kind="extreme", name=tensor.name, message=message))
        elif tensor.count >= MANY and tensor.largest > ALONE * tensor.typical > 0:
            message = (
                f"single weights are {tensor.largest / tensor.typical:.3g} times the usual one "
                f"({tensor.largest:.3g} and {tensor.typical:.3g}): damaged memory or one bad update"
            )
            found.append(Ailment(kind="lone_value", name=tensor.name, message=message))
        if then is not None and then.variance > 0 and tensor.variance == 0 and tensor.count > 1:
            message = f"all its weights are {tensor.mean:.3g}; they differed in the first state"
            found.append(Ailment(kind="lost_layer", name=tensor.name, message=message))
    return found


def _stand_out(tensors: Iterable[TensorFigures], grown: Mapping[str, float]) -> list[Ailment]:
    """Return parameters whose size changed unlike the others', or is unlike theirs."""
    if grown:
        sizes = {name: ratio for name, ratio in grown.items() if ratio > 0}
        what = "times its size in the first state, the others"
    else:
        sizes = {
            t.name: t.size
            for t in tensors
            if t.part == "parameter" and len(t.shape) >= 2 and t.size > 0
        }
        what = "is its usual absolute value, that of the other weights"
    sizes = {name: size for name, size in sizes.items() if math.isfinite(size)}
    if len(sizes) < FEW_LAYERS:
        return []
    centre, spread = centre_and_spread([math.log10(size) for size in sizes.values()])
    found = []
    for name, size in sizes.items():
        off = abs(math.log10(size) - centre)
        if off > math.log10(TIMES) and off > UNLIKE * max(spread, 0.05):
            message = f"{size:.3g} {what} {10**centre:.3g}"
            found.append(Ailment(kind="stands_out", name=name, message=message))
    return found


def _of_state(tensors: Iterable[TensorFigures]) -> list[Ailment]:
    found = []
    for tensor in tensors:
        last = tensor.name.rpartition(".")[2]
        if last in {"exp_avg_sq", "max_exp_avg_sq", "square_avg"} and tensor.smallest < 0:
            message = f"a mean of squares is {tensor.smallest:.3g}, below 0: its root is NaN"
            found.append(Ailment(kind="second_moment", name=tensor.name, message=message))
        if last == "running_var" and tensor.smallest < NO_VARIANCE:
            message = f"a normalisation has seen no variance ({tensor.smallest:.3g} at the least)"
            found.append(Ailment(kind="variance", name=tensor.name, message=message))
    return found


def _gradient_norms(records: Sequence[StepRecord]) -> list[Ailment]:
    """Return an ailment when gradient norms were beyond 1000, unless that is usual in the run."""
    norms = [record.grad_norm for record in records if math.isfinite(record.grad_norm)]
    usual = median(norms) if len(norms) >= ENOUGH else 0.0
    limit = max(ALARM, 3 * usual)
    high = [r for r in records if r.grad_norm > limit]
    if not high:
        return []
    worst = max(high, key=lambda record: record.grad_norm)
    message = (
        f"beyond {limit:,.0f} before clipping in {len(high)} of {len(records)} steps, first at "
        f"step {high[0].step}, {worst.grad_norm:.3g} at most (step {worst.step})"
    )
    return [Ailment(kind="gradient_norm", name="gradient norm", message=message)]
