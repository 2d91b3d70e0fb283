"""Parameters start initialised, and move.

A parameter that has a gradient and a rate, and is still bit for bit what it was after several
updates, is not trained, whatever the loss says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule
from stabexp.instruments.rule_watch import parameter_names

ABSURD = 1e6
"""A fresh weight beyond this was never written."""


class ParameterNeverMoves(Rule):
    """A parameter with a gradient is changed by the updates."""

    slug: ClassVar[str] = "parameter_never_moves"

    def __init__(self) -> None:
        self._updates = 0
        self._step = self._first = 0
        self._before: list[Tensor] = []
        self._due: list[bool] = []

    def attach(self, watched: Watched) -> None:
        self._optimizer = watched.optimizer
        self._names = parameter_names(watched.model, watched.optimizer)
        inside = [p for g in watched.optimizer.param_groups for p in g["params"]]
        self._own = [p for p in inside if p.requires_grad]
        own = {id(p) for p in inside}
        model = [p for p in watched.model.parameters() if p.requires_grad]
        self._left_out = [p for p in model if id(p) not in own]
        in_model = {id(p) for p in watched.model.parameters()}
        self._strangers = [p for p in self._own if id(p) not in in_model]
        self._started = [p.detach().clone() for p in self._left_out]
        self._stuck = dict.fromkeys(range(len(self._own)), 0)
        self._moved: set[int] = set()
        self._idle = set(range(len(self._own)))
        """Parameters that never had a gradient."""
        self._pulled = dict.fromkeys(range(len(self._left_out)), 0)

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def update_begins(self) -> None:
        rates = {id(p): float(g["lr"]) for g in self._optimizer.param_groups for p in g["params"]}
        self._before = [p.detach().clone() for p in self._own]
        self._due = [_must_move(p, rates.get(id(p), 0.0)) for p in self._own]
        for index, parameter in enumerate(self._own):
            if parameter.grad is not None:
                self._idle.discard(index)
        for index, parameter in enumerate(self._left_out):
            self._pulled[index] += parameter.grad is not None and bool(parameter.grad.any())

    def update_made(self) -> None:
        if not self._updates:
            self._first = self._step
        self._updates += 1
        for index, (now, was) in enumerate(zip(self._own, self._before, strict=True)):
            if not torch.equal(now.detach(), was):
                self._moved.add(index)
            elif self._due[index]:
                self._stuck[index] += 1
        self._before = []

    def finding(self) -> Finding | None:
        if self._updates < 3:
            return None
        stuck = [i for i, n in self._stuck.items() if n >= 3 and i not in self._moved]
        if stuck:
            return self._stuck_finding(stuck)
        return self._left_out_finding() or self._idle_finding()

    def _stuck_finding(self, stuck: list[int]) -> Finding:
        first = self._own[stuck[0]]
        layout = "" if first.is_contiguous() else " and is not contiguous in memory"
        half = first.element_size() < 4
        return Finding(
            rule=self.slug,
            step=self._first,
            place=self._names[id(first)],
            detail=f"{len(stuck)} of {len(self._own)} parameters are bit for bit unchanged after "
            f"{self._stuck[stuck[0]]} updates although each has a gradient and a rate; the first "
            f"is {first.dtype}{layout}".replace("torch.", ""),
            remedy="keep the weights in float32: the updates are rounded away"
            if half
            else "make it contiguous before the optimizer is built, and check that the update "
            "writes into the parameter itself",
            strength="suspicious" if half else "certain",
            cure=("precision", "fp32") if half else None,
        )

    def _left_out_finding(self) -> Finding | None:
        same = [
            index
            for index, (now, was) in enumerate(zip(self._left_out, self._started, strict=True))
            if self._pulled[index] >= 3 and torch.equal(now.detach(), was)
        ]
        shapes = {tuple(p.shape) for p in self._strangers if p.grad is None}
        replaced = [i for i in same if tuple(self._left_out[i].shape) in shapes]
        missing = sum(self._left_out[i].numel() for i in same)
        # Most of a model left out is a head trained on frozen features.
        if not same or (not replaced and missing > sum(p.numel() for p in self._own)):
            return None
        chosen = replaced or same
        return Finding(
            rule=self.slug,
            step=self._first,
            place=self._names[id(self._left_out[chosen[0]])],
            detail=f"{len(chosen)} parameters of the model have gradients but are not in the "
            "optimizer"
            + (
                ", which holds parameters of the same shapes that are no longer in the model"
                if replaced
                else ""
            ),
            remedy="build the optimizer after the model is complete, from model.parameters()",
            strength="certain" if replaced else "suspicious",
        )

    def _idle_finding(self) -> Finding | None:
        if self._updates < 5 or not self._idle or len(self._idle) == len(self._own):
            return None
        names = [self._names[id(self._own[index])] for index in sorted(self._idle)]
        return Finding(
            rule=self.slug,
            step=self._first,
            place=names[0],
            detail=f"{len(names)} parameters ({', '.join(names[:3])}) had no gradient in any of "
            f"{self._updates} updates: the loss does not depend on them",
            remedy="use them, freeze them, or look for a detach() on the way to the loss",
            strength="suspicious",
        )


def _must_move(parameter: Tensor, rate: float) -> bool:
    """Return whether some element's update is, by any usual rule, far above rounding."""
    grad = parameter.grad
    if grad is None or grad.is_sparse or rate <= 0 or not parameter.numel():
        return False
    size = torch.finfo(parameter.dtype).eps * 8
    expected = rate * grad.detach().abs().float().clamp(max=1.0)
    needed = parameter.detach().abs().float() * size + 1e-30
    if not bool(torch.isfinite(expected).all()):
        return False
    return (
        bool((expected > needed).any())
        if parameter.element_size() >= 4
        else rate > 1e-6 and bool(grad.any())
    )


class ParameterNotInitialised(Rule):
    """Before the first update every parameter holds a number of sensible size."""

    slug: ClassVar[str] = "parameter_not_initialised"

    def __init__(self) -> None:
        self._checked = False
        self._found: Finding | None = None

    def attach(self, watched: Watched) -> None:
        self._names = parameter_names(watched.model, watched.optimizer)
        inside = [p for g in watched.optimizer.param_groups for p in g["params"]]
        unique = {id(p): p for p in (*watched.model.parameters(), *inside)}
        self._parameters = [p for p in unique.values() if p.is_floating_point()]

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        if self._checked:
            return
        self._checked = True
        if step > 0:  # what is wrong now may have come from the training
            return
        for parameter in self._parameters:
            if not parameter.numel():
                continue
            wrong = int((~(parameter.detach().abs() <= ABSURD)).sum())
            if wrong:
                bad = parameter.detach()[~(parameter.detach().abs() <= ABSURD)].flatten()
                self._found = Finding(
                    rule=self.slug,
                    step=step,
                    place=self._names[id(parameter)],
                    detail=f"{wrong} of {parameter.numel()} values are {float(bad[0]):.3g} or the "
                    "like before the first update: the memory was never written",
                    remedy="initialise it, for example with nn.init.zeros_ for a bias",
                )
                return

    def finding(self) -> Finding | None:
        return self._found
