"""Accumulated micro-batches count per target, and everything the logged loss depends on is trained.

How much a single target weighs is read off the graph: the derivative of the differentiated scalar
by the summed loss. A mean per micro-batch gives targets of short micro-batches more weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place
from stabexp.instruments.rule_graph import derivatives, parameters_below
from stabexp.instruments.rule_watch import parameter_names

_LOSSES: tuple[str, ...] = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
)
_LOSSES += ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_ELEMENTS = ("pow", "__pow__", "square", "abs")


@dataclass(frozen=True)
class _Unit:
    """One loss computed by one call."""

    result: Tensor
    place: str
    targets: int | None
    """How many targets were averaged or summed; None when each has an element of its own."""
    mean: bool
    rows: int | None
    """The dimension to add up over, for log-probabilities."""


class MicroBatchesWeightedWrongly(Rule):
    """Every counted target of an update weighs the same, in whichever micro-batch it came."""

    slug: ClassVar[str] = "micro_batches_weighted_wrongly"
    watches: ClassVar[frozenset[str]] = frozenset({*_LOSSES, *_ELEMENTS, "log_softmax"})

    def __init__(self) -> None:
        self._units: list[_Unit] = []
        self._weighed: dict[str, list[tuple[float, int, int]]] = {}
        self._ids: list[tuple[int, ...]] = []
        self._step = self._backwards = self._looked = 0
        self.totals: dict[int, float] = {}
        """By update, the weights of all its targets added up: 1 for a mean."""
        self._found: list[tuple[int, str, list[int], tuple[int, ...]]] = []

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._ids.append(tuple(ids))

    def called(self, call: Call) -> None:
        result = call.result
        if not isinstance(result, Tensor) or not result.requires_grad or result.grad_fn is None:
            return
        if call.name in _ELEMENTS:
            if result.dim() <= 2 and len(self._units) < 256:
                self._units.append(_Unit(result, place(), None, False, None))
        elif call.name == "log_softmax":
            self._units.append(
                _Unit(result, place(), None, False, int(call.argument(1, "dim", -1)))
            )
        else:
            self._units.append(self._loss_unit(call, result))

    @staticmethod
    def _loss_unit(call: Call, result: Tensor) -> _Unit:
        if result.dim() and result.numel() > 1:
            return _Unit(result, place(), None, False, None)
        target, values = call.argument(1, "target"), call.argument(0, "input")
        count = max(target.numel(), 1)
        if call.name in {"cross_entropy", "nll_loss"}:
            if target.is_floating_point():  # probabilities: one target per row
                count = values.numel() // values.shape[min(1, values.dim() - 1)]
            else:
                ignored = call.kwargs.get("ignore_index", -100)
                count = int((target != ignored).sum())
        mean = call.kwargs.get("reduction", "mean") == "mean"
        if call.kwargs.get("weight") is not None:
            count = 0  # classes weigh differently: not comparable
        return _Unit(result, place(), count, mean, None)

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        units, self._units = self._units, []
        if len(scalars) != 1 or scalars[0].numel() != 1:
            return
        self._backwards += 1
        gradients = derivatives(scalars[0], [unit.result for unit in units])
        for unit, gradient in zip(units, gradients, strict=True):
            found = None if gradient is None else _weight(unit, gradient)
            if found is not None:
                rows = self._weighed.setdefault(unit.place, [])
                rows.append((*found, self._backwards))

    def update_begins(self) -> None:
        for where, rows in self._weighed.items():
            counts = [count for _, count, _ in rows]
            # Several losses of one backward pass are terms, not micro-batches.
            several = any(number > 1 for number in Counter(row[2] for row in rows).values())
            if len(rows) < 2 or several:
                continue
            whole = [weight * count for weight, count, _ in rows]
            if len(rows) == self._backwards:
                self.totals[self._step] = sum(whole)
            self._looked += 1
            if max(counts) > 1.5 * min(counts) and max(whole) <= 1.05 * min(whole):
                short = (
                    ()
                    if len(self._ids) != len(rows)
                    else tuple(
                        sample
                        for (_, count, _), ids in zip(rows, self._ids, strict=True)
                        if count == min(counts)
                        for sample in ids
                    )
                )
                self._found.append((self._step, where, counts, short))
            break

    def batch_ends(self) -> None:
        self._units = []

    def update_ends(self, step: int) -> None:
        self._weighed, self._ids, self._backwards = {}, [], 0

    def finding(self) -> Finding | None:
        if len(self._found) < 3 or len(self._found) < 0.3 * self._looked:
            return None
        step, where, counts, samples = max(
            self._found, key=lambda found: max(found[2]) / min(found[2])
        )
        return Finding(
            rule=self.slug,
            step=step,
            place=where,
            detail=f"the {len(counts)} micro-batches of the update hold {min(counts)} to "
            f"{max(counts)} targets and each counts the same, so a target of the smallest weighs "
            f"{max(counts) / min(counts):.3g} times as much as one of the largest; so at "
            f"{len(self._found)} of {self._looked} updates",
            remedy="divide each micro-batch's summed loss by the number of targets in the whole "
            "update",
            samples=samples[:16],
        )


def _weight(unit: _Unit, gradient: Tensor) -> tuple[float, int] | None:
    """Return the weight of one target and how many there are; None when they differ."""
    if unit.targets is not None:
        if not unit.targets:
            return None
        value = float(gradient)
        return (value / unit.targets if unit.mean else value), unit.targets
    rows = gradient if unit.rows is None else gradient.sum(unit.rows)
    rows = rows[rows != 0].double()
    if not rows.numel():
        return None
    low, high = float(rows.min()), float(rows.max())
    if high - low > 1e-3 * max(abs(low), abs(high)):
        return None
    return abs(high), rows.numel()


class LossDetached(Rule):
    """Every parameter the logged loss depends on gets its gradient."""

    slug: ClassVar[str] = "loss_detached"
    looks: ClassVar[int] = 3

    def __init__(self) -> None:
        self._logged: list[Tensor] = []
        self._scalars: list[Tensor] = []
        self._missing: list[tuple[int, set[int]]] = []
        self._looked = self._step = 0

    def attach(self, watched: Watched) -> None:
        self._names = parameter_names(watched.model, watched.optimizer)
        self._trained = {
            id(p): p for g in watched.optimizer.param_groups for p in g["params"] if p.requires_grad
        }

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def logged(self, loss: Tensor) -> None:
        if self._looked < self.looks:
            self._logged.append(loss)

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        if self._looked < self.looks:
            self._scalars += scalars

    def batch_ends(self) -> None:
        logged, scalars = self._logged, self._scalars
        self._logged, self._scalars = [], []
        if not scalars or not any(loss.grad_fn is not None for loss in logged):
            return
        self._looked += 1
        sets = [parameters_below(tensor) for tensor in (*logged, *scalars)]
        if any(found is None for found in sets):
            return
        known = [found or set() for found in sets]
        wanted = set[int]().union(*known[: len(logged)]) & set(self._trained)
        reached = set[int]().union(*known[len(logged) :])
        missing = {
            key
            for key in wanted - reached
            if (grad := self._trained[key].grad) is None or not bool(grad.any())
        }
        if missing:
            self._missing.append((self._step, missing))

    def finding(self) -> Finding | None:
        if len(self._missing) < self.looks:
            return None
        step, missing = self._missing[0]
        always = missing.intersection(*(keys for _, keys in self._missing))
        if not always:
            return None
        names = sorted(self._names[key] for key in always)
        return Finding(
            rule=self.slug,
            step=step,
            place=names[0],
            detail=f"the logged loss depends on {len(names)} parameters ({', '.join(names[:3])}) "
            "that the differentiated one does not depend on, so they get no gradient",
            remedy="call backward() on the loss that is logged, and detach nothing on the way",
            strength="suspicious",
        )
