"""Keeps a ledger of what happens to the gradients on their way to the update.

It follows a few parameters' gradients from the backward pass to the update and writes down by
which factor each change multiplied them, and where. With b = how strongly the differentiated scalar
depends on the logged loss (the loss scale, or 1/k for k micro-batches) the update used
sum(b) × product(factors) times the true gradient: 1 in a correct step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Rule, called_from, place
from stabexp.instruments.rule_graph import derivative

PROBES = 3
"""Parameters whose gradients are followed: the largest ones."""

_CHANGES = frozenset(
    {"mul_", "div_", "__imul__", "__itruediv__", "copy_", "_foreach_mul_", "_foreach_div_"}
    | {"_foreach_clamp_min_", "_foreach_clamp_max_", "clamp_"}
    | {"_amp_foreach_non_finite_check_and_unscale_", "true_divide_", "multiply_", "divide_"}
)
_NORMS = frozenset(
    {
        "norm",
        "pow",
        "__pow__",
        "square",
        "dot",
        "vector_norm",
        "_foreach_norm",
        "linalg_vector_norm",
    }
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happened to the gradients between a backward pass and the update."""

    kind: str
    """ "loop": the loop's own · "clip": torch's clipping, or ours."""
    factor: float | None
    """None when it was not one factor for all."""
    place: str


@dataclass(kw_only=True)
class Update:
    """How one update's gradient came about."""

    step: int
    backwards: int
    weight: float | None = None
    """Sum of the derivatives of the differentiated scalars by the logged losses."""
    changes: list[Change] = field(default_factory=list)
    norm: float = math.nan
    divided: bool = False
    """Whether a differentiated scalar was multiplied or divided by a constant just before."""

    @property
    def factor(self) -> float | None:
        """Product of the loop's own factors; None when one was not uniform."""
        product = 1.0
        for change in self.changes:
            if change.kind == "loop":
                if change.factor is None:
                    return None
                product *= change.factor
        return product


class GradientLedger(Rule):
    """Writes down every update; fires nothing itself."""

    slug: ClassVar[str] = "gradient_ledger"
    watches: ClassVar[frozenset[str]] = _CHANGES | _NORMS

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.batch_sizes: set[int] = set()
        self._step = 0

    def attach(self, watched: Watched) -> None:
        self.optimizer = watched.optimizer
        self.scaler = watched.scaler
        parameters = [p for group in watched.optimizer.param_groups for p in group["params"]]
        self._candidates = sorted(parameters, key=lambda p: -p.numel())
        self._reset()
        self._reset_batches()

    def _reset(self) -> None:
        self._changes: list[Change] = []
        self._base: list[tuple[Any, Tensor]] = []
        self._backwards = 0
        self._divided = False

    def _reset_batches(self) -> None:
        self._weights: list[float | None] = []
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._scalars: list[Tensor] = []
        self._logged: list[Tensor] = []
        self._known: list[float | None] = []
        self._open: list[Update] = []

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self.batch_sizes.add(len(ids))

    def logged(self, loss: Tensor) -> None:
        self._logged.append(loss)
        if len(self._logged) <= len(self._scalars):  # logged after its backward pass
            index = len(self._logged) - 1
            self._known[index] = derivative(self._scalars[index], loss)

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._note_change("loop")
        scalar = scalars[0] if len(scalars) == 1 and scalars[0].numel() == 1 else None
        if scalar is None:
            self._weights.append(None)
            return
        index = len(self._scalars)
        self._scalars.append(scalar)
        self._divided |= _is_scaled(scalar)
        known = None
        if index < len(self._logged):
            known = derivative(scalar, self._logged[index])
        self._known.append(known)

    def backward_ends(self) -> None:
        self._backwards += 1
        self._rebase()

    def _rebase(self) -> None:
        probes = [p for p in self._candidates if p.grad is not None and not p.grad.is_sparse]
        self._base = [(p, p.grad.detach().clone()) for p in probes[:PROBES]]

    def called(self, call: Call) -> None:
        if not self._base:
            return
        target = call.args[0] if call.args else None
        first = target[0] if isinstance(target, (list, tuple)) and target else target
        grads = {id(p.grad) for p in self._candidates}
        if not isinstance(first, Tensor) or id(first) not in grads:
            return
        clipping = called_from("nn/utils/clip_grad.py") or called_from("training/boundary.py")
        clipping &= "unscale" not in call.name  # scaler.step unscales what the loop has not
        if call.name in _NORMS:
            if called_from("training/boundary.py"):  # our own measurement
                return
            self._note_change("loop")
            self._changes.append(Change(kind="norm", factor=1.0, place=place()))
        else:
            self._note_change("clip" if clipping else "loop")

    def _note_change(self, kind: str, *, last: bool = False) -> None:
        """Compare the probes' gradients with what they were last, and start from here."""
        factors = [_factor(p.grad, base) for p, base in self._base if p.grad is not None]
        factors = [f for f in factors if f != "zero"]
        if not factors or all(f == 1.0 for f in factors):
            return
        numbers = [f for f in factors if isinstance(f, float)]
        uniform = len(numbers) == len(factors) and max(numbers) - min(numbers) <= 0.01 * abs(
            numbers[0]
        )
        value = numbers[0] if uniform else None
        if value is None and not last and any(f == 1.0 for f in numbers):
            return  # one parameter after another is being changed: wait for the last
        where = place()
        self._changes.append(Change(kind=kind, factor=value, place=where))
        self._rebase()

    def update_begins(self) -> None:
        self._note_change("loop", last=True)
        inside = getattr(self.optimizer, "grad_scale", None)  # a fused kernel unscales by itself
        if isinstance(inside, Tensor):
            factor = 1.0 / float(inside)
            self._changes.append(Change(kind="loop", factor=factor, place="optimizer"))
        norms = [float(p.grad.norm()) for p, _ in self._base if p.grad is not None]
        update = Update(
            step=self._step,
            backwards=self._backwards,
            changes=self._changes,
            divided=self._divided,
            norm=math.hypot(*norms) if norms else math.nan,
        )
        self.updates.append(update)
        self._open.append(update)
        self._reset()

    def batch_ends(self) -> None:
        """Turn the batch's scalars and logged losses into a weight; the loss may be logged last."""
        scalars, logged, known = self._scalars, self._logged, self._known
        if scalars:
            if len(scalars) == len(logged) and all(k is not None for k in known):
                self._weights += known
            else:
                self._weights.append(_by_value(scalars, logged))
        if len(self._open) == 1:
            weights = [w for w in self._weights if w is not None]
            if weights and len(weights) == len(self._weights):
                self._open[0].weight = sum(weights)
        self._forget_batch()

    def update_ends(self, step: int) -> None:
        self._reset()
        self._reset_batches()


def _is_scaled(scalar: Tensor) -> bool:
    node = scalar.grad_fn
    kind = type(node).__name__
    if node is None or not kind.startswith(("MulBackward", "DivBackward")):
        return False
    return any(following is None for following, _ in node.next_functions)


def _by_value(scalars: Sequence[Tensor], logged: Sequence[Tensor]) -> float | None:
    """Return the summed weight of a batch's losses from their values alone."""
    total = sum(float(loss) for loss in logged)
    value = sum(float(scalar) for scalar in scalars)
    usable = math.isfinite(total) and math.isfinite(value) and abs(total) > 1e-8
    return len(logged) * value / total if usable else None


def _factor(gradient: Tensor, base: Tensor) -> float | str | None:
    """Return c with gradient = c × base, "zero" where base is zero, None when there is none."""
    if gradient.shape != base.shape:
        return None
    if torch.equal(gradient, base):
        return 1.0
    now, before = gradient.double().flatten(), base.double().flatten()
    square = float(before @ before)
    if square == 0 or not math.isfinite(square):
        return "zero" if square == 0 else None
    factor = float(now @ before) / square
    rest = float((now - factor * before).norm())
    return factor if rest <= 2e-3 * float(now.norm()) else None
