"""Every update starts from gradients of zero: the step's own gradient and nothing left over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule, place
from stabexp.instruments.rule_watch import parameter_names


class GradientAccumulatesOverSteps(Rule):
    """The first backward pass of an update finds no gradients left from the one before."""

    slug: ClassVar[str] = "gradient_accumulates_over_steps"

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, str, str]] = []
        self._stale: dict[int, bool] | None = None
        self._updates = 0
        self._step = 0
        self._place = ""

    def attach(self, watched: Watched) -> None:
        self._parameters = [p for g in watched.optimizer.param_groups for p in g["params"]]
        self._names = parameter_names(watched.model, watched.optimizer)

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        if not self._updates:
            return
        left = {
            id(p): bool(p.grad.detach().any())
            for p in self._parameters
            if p.grad is not None and not p.grad.is_sparse
        }
        if self._stale is None:
            self._stale, self._place = left, place()
        else:
            self._stale = {key: was and left.get(key, False) for key, was in self._stale.items()}

    def update_begins(self) -> None:
        stale = [key for key, was in (self._stale or {}).items() if was]
        if stale:
            name = self._names[stale[0]]
            self._seen.append((self._step, len(stale), name, self._place))

    def update_made(self) -> None:
        self._updates += 1
        self._stale = None

    def update_ends(self, step: int) -> None:
        self._stale = None

    def finding(self) -> Finding | None:
        if len(self._seen) < 2:
            return None
        step, count, name, where = self._seen[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=where,
            detail=f"{count} of {len(self._parameters)} parameters ({name}, …) still held the "
            f"gradient of the update before when backward() added to it, at {len(self._seen)} of "
            f"{self._updates} updates",
            remedy="call optimizer.zero_grad() once per update, before the first backward()",
        )
