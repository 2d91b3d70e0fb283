"""In an update the gradient is made, limited, used once and cleared, in this order.

loss ÷ accumulation → backward → unscale → clip → step → zero (source rows A11, A19). What the rules
of the step do not ask, because a training that goes on has passed it, is asked here: a second step
on the same gradient, a clip that comes too late, an update of half the weights' size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, called_from, place
from stabexp.state.hashing import parameter_digest


class OneUpdatePerGradient(Rule):
    """Each update uses a gradient of its own batch, once."""

    slug: ClassVar[str] = "double_step"

    def __init__(self) -> None:
        self._step = 0
        self._backwards = self._in_batch = self._updates = 0
        self._begun: int | None = None
        self._last: int | None = None
        self._seen: dict[str, list[tuple[int, str]]] = {}

    def attach(self, watched: Watched) -> None:
        self._parameters = [p for group in watched.optimizer.param_groups for p in group["params"]]

    def _digest(self) -> int | None:
        grads = [p.grad for p in self._parameters if p.grad is not None and not p.grad.is_sparse]
        return int(parameter_digest(grads)) if grads else None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._backwards = self._in_batch = 0
        self._begun = self._digest()

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._backwards += 1

    def update_begins(self) -> None:
        self._updates += 1
        self._in_batch += 1
        now = self._digest()
        used = [p for p in self._parameters if p.grad is not None and bool(p.grad.any())]
        if not used:
            self._note("no_gradient_at_update")
        elif self._in_batch > 1 and now == self._last:
            self._note("double_step")
        elif self._in_batch == 1 and not self._backwards and now == self._begun:
            self._note("update_before_backward")
        self._last = now

    def _note(self, name: str) -> None:
        self._seen.setdefault(name, []).append((self._step, place()))

    def finding(self) -> Finding | None:
        says = {
            "double_step": (
                "optimizer.step() was called twice on one gradient",
                "call optimizer.step() once per update (scaler.step and a trainer call it already)",
            ),
            "update_before_backward": (
                "the update used the gradient of the batch before: backward() came after it",
                "call backward() first, then optimizer.step(), then zero_grad()",
            ),
            "no_gradient_at_update": (
                "every gradient was missing or zero when optimizer.step() was called",
                "call zero_grad() after optimizer.step() or before backward(), never between "
                "them, and "
                "give the optimizer the parameters that the loss depends on",
            ),
        }
        for name, (what, remedy) in says.items():
            seen = self._seen.get(name, [])
            if len(seen) >= max(3, 0.4 * self._updates):
                step, where = seen[0]
                return Finding(
                    rule=name,
                    step=step,
                    place=where,
                    detail=f"{what}, at {len(seen)} of {self._updates} updates",
                    remedy=remedy,
                )
        return None


_NORMS = frozenset({"_foreach_norm", "linalg_vector_norm", "vector_norm", "tensor"})


class ClipBeforeUpdate(Rule):
    """A norm is limited when the gradient is there and not yet used."""

    slug: ClassVar[str] = "clip_has_no_effect"
    watches: ClassVar[frozenset[str]] = _NORMS

    def __init__(self) -> None:
        self._step = 0
        self._backwards = self._updates = 0
        self._seen: list[tuple[int, str, str]] = []
        self._clips: set[int] = set()

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._backwards = self._updates = 0

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._backwards += 1

    def update_made(self) -> None:
        self._updates += 1

    def called(self, call: Call) -> None:
        if not called_from("nn/utils/clip_grad.py") or self._step in self._clips:
            return
        self._clips.add(self._step)
        if self._updates:
            self._seen.append((self._step, place(), "after optimizer.step()"))
        elif not self._backwards:
            self._seen.append((self._step, place(), "before backward()"))

    def finding(self) -> Finding | None:
        if len(self._seen) < max(3, 0.8 * len(self._clips)):
            return None
        step, where, when = self._seen[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=where,
            detail=f"the gradient norm is limited {when}, at {len(self._seen)} of "
            f"{len(self._clips)} steps",
            remedy="clip after backward() (and after scaler.unscale_), before optimizer.step()",
        )


class UpdateSize(Rule):
    """An update changes the weights by a small part of their size."""

    slug: ClassVar[str] = "rate_too_high"

    def __init__(self, rates: Any) -> None:
        """`rates` is the rule that knows the rate over the whole run."""
        self._over_the_run = rates
        self._ratios: list[tuple[float, float]] = []
        self._before: list[Tensor] = []

    def attach(self, watched: Watched) -> None:
        self._optimizer = watched.optimizer
        inside = [p for group in watched.optimizer.param_groups for p in group["params"]]
        self._weights = [p for p in inside if p.dim() > 1 and p.requires_grad and bool(p.any())]

    def update_begins(self) -> None:
        self._before = [p.detach().clone() for p in self._weights]

    def update_made(self) -> None:
        rate = max(float(group["lr"]) for group in self._optimizer.param_groups)
        if not self._before or rate <= 0:
            return
        moved = sum(
            float((p - b).float().square().sum())
            for p, b in zip(self._weights, self._before, strict=True)
        )
        size = sum(float(b.float().square().sum()) for b in self._before)
        self._before = []
        if size > 0 and math.isfinite(moved):
            self._ratios.append(((moved / size) ** 0.5, rate))

    def finding(self) -> Finding | None:
        if len(self._ratios) < 3:
            return None
        peak = max(self._over_the_run.rates, default=0.0)
        # An update is proportional to the rate, so at the peak of the schedule it is this large.
        ratios = sorted(ratio * peak / rate for ratio, rate in self._ratios)
        usual = ratios[len(ratios) // 2]
        if usual <= LARGE_UPDATE:
            return None
        return Finding(
            rule=self.slug,
            step=0,
            place=type(self._optimizer).__name__,
            detail=f"at the highest rate of the run, {peak:.3g}, one update changes the weights by "
            f"{usual:.2g} of their size; about 0.001 is usual",
            remedy="lower the rate, or find one: stabexp lr-find",
            strength="suspicious",
        )


LARGE_UPDATE = 0.5
"""Share of their size by which one update moves the weights, above which nothing is kept."""
