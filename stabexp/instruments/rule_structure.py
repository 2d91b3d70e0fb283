"""Low-rank adapters are scaled like adapters, and a router routes to more than one expert.

Both are read off the functions the loop calls, whoever wrote the modules: x A B added to a frozen
product is an adapter; a softmax over a few choices whose winner is used as an index is a router.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place

ENOUGH = 36
"""Batches to watch a router for: a balancing term takes some tens of updates to show."""

_PRODUCTS = frozenset({"linear", "matmul", "__matmul__", "mm", "bmm"})
_SCALES = frozenset({"mul", "__mul__", "__rmul__", "multiply", "div", "__truediv__"})
_SUMS = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__"})


class AdapterScale(Rule):
    """An adapter of rank r is added with a factor alpha / r, not alpha."""

    slug: ClassVar[str] = "adapter_scale"
    watches: ClassVar[frozenset[str]] = _PRODUCTS | _SCALES | _SUMS

    def __init__(self) -> None:
        self._step = 0
        self._parts: dict[int, tuple[Tensor, int, bool, float]] = {}
        """Result of x A, or x A B: by id the tensor, the rank, whether B was met, the factor."""
        self._frozen: dict[int, Tensor] = {}
        self._found: Finding | None = None
        self._steps: set[int] = set()

    def attach(self, watched: Watched) -> None:
        inside = (p for g in watched.optimizer.param_groups for p in g["params"])
        self._trained = {id(p) for p in inside if p.requires_grad}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def batch_ends(self) -> None:
        self._parts, self._frozen = {}, {}

    def called(self, call: Call) -> None:
        if len(call.args) < 2 or not isinstance(call.result, Tensor) or len(self._steps) >= 3:
            return
        a, b = call.args[:2]
        if call.name in _PRODUCTS and isinstance(a, Tensor) and isinstance(b, Tensor):
            self._product(a, b, call)
        elif call.name in _SCALES:
            part, factor = (a, b) if isinstance(a, Tensor) else (b, a)
            if id(part) in self._parts and isinstance(factor, (int, float)):
                _, rank, whole, before = self._parts[id(part)]
                scale = 1.0 / factor if "div" in call.name and factor else float(factor)
                self._parts[id(call.result)] = (call.result, rank, whole, before * scale)
        elif call.name in _SUMS:
            for part, base in ((a, b), (b, a)):
                if id(part) in self._parts and id(base) in self._frozen:
                    self._sum(*self._parts[id(part)][1:])

    def _product(self, a: Tensor, b: Tensor, call: Call) -> None:
        weight = b if b._base is None else b._base
        if id(weight) not in self._trained:
            if not weight.requires_grad and weight.dim() == 2:
                self._frozen[id(call.result)] = call.result
            return
        if id(a) in self._parts and not self._parts[id(a)][2]:
            _, rank, _, factor = self._parts[id(a)]
            if rank in weight.shape:
                self._parts[id(call.result)] = (call.result, rank, True, factor)
        elif weight.dim() == 2:
            self._parts[id(call.result)] = (call.result, call.result.shape[-1], False, 1.0)

    def _sum(self, rank: int, whole: bool, factor: float) -> None:
        # Usual are alpha = 8 to 64 and alpha / r = 0.5 to 4.
        if not whole or factor <= 8 or rank < 4 or factor * rank < 128:
            return
        self._steps.add(self._step)
        self._found = self._found or Finding(
            rule=self.slug,
            step=self._step,
            place=place(),
            detail=f"a product of rank {rank} is added to a frozen one with the factor "
            f"{factor:.4g}; with the usual alpha / r that would mean alpha = {factor * rank:.4g}",
            remedy=f"divide the factor by the rank: {factor / rank:.4g}",
            strength="suspicious",
        )

    def finding(self) -> Finding | None:
        return self._found


@dataclass(frozen=True)
class _Routed:
    """What a router did with one batch."""

    step: int
    share: float
    """Part of the tokens whose first choice is the winner."""
    winner: int
    tokens: int
    chance: float
    """Mean probability of the winner."""


class RouterCollapse(Rule):
    """A router's first choice differs between tokens."""

    slug: ClassVar[str] = "router_collapse"
    watches: ClassVar[frozenset[str]] = frozenset(
        {"argmax", "topk", "max", "__getitem__", "one_hot", "gather", "scatter", "scatter_"}
        | {"index_select", "__eq__", "eq", "embedding", "cross_entropy", "index_add_", "bincount"}
    )

    def __init__(self) -> None:
        self._step = 0
        self._choices: dict[int, tuple[Tensor, Tensor, Tensor, str]] = {}
        self._loss_done = False
        self._seen: dict[str, list[_Routed]] = {}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._loss_done = step, False

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._loss_done = True

    def batch_ends(self) -> None:
        self._choices = {}

    def called(self, call: Call) -> None:
        if self._loss_done:
            return
        if call.name == "cross_entropy":  # what is chosen after it is a prediction
            self._loss_done = True
        elif call.name in {"argmax", "topk", "max"}:
            self._chosen(call)
        elif self._choices:
            self._used(call)

    def _chosen(self, call: Call) -> None:
        source = call.args[0]
        index = call.result if call.name == "argmax" else getattr(call.result, "indices", None)
        if not isinstance(source, Tensor) or not isinstance(index, Tensor) or source.dim() < 2:
            return
        if not source.requires_grad or not 4 <= source.shape[-1] <= 256:
            return
        dim = call.argument(1 if call.name != "topk" else 2, "dim", -1)
        if dim not in (-1, source.dim() - 1):
            return
        first = index[..., :1] if call.name == "topk" else index
        if first.numel() < 16:
            return
        self._choices[id(index)] = (index, first, source, place())
        if call.name == "topk":  # its values weigh the experts: it is in use already
            self._count(id(index))

    def _used(self, call: Call) -> None:
        values = [*call.args, *call.kwargs.values()]
        for value in list(values):
            if isinstance(value, (tuple, list)):
                values += value
        for value in values:
            key = id(value)
            if key not in self._choices and isinstance(value, Tensor) and value._base is not None:
                key = id(value._base)
            if key in self._choices:
                if call.name in {"__eq__", "eq"} and not isinstance(call.args[1], int):
                    self._choices.pop(key)  # compared with targets: a prediction
                else:
                    self._count(key)
                return

    def _count(self, key: int) -> None:
        _, first, source, where = self._choices.pop(key)
        counts = torch.bincount(first.flatten())
        winner = int(counts.argmax())
        rows = source.detach().float().flatten(0, -2)
        sums = rows.sum(-1)
        normal = bool((rows >= 0).all()) and bool(((sums - 1).abs() < 1e-2).all())
        chance = float((rows if normal else rows.softmax(-1))[:, winner].mean())
        seen = self._seen.setdefault(where, [])
        if not seen or seen[-1].step != self._step:
            share = float(counts.max()) / first.numel()
            seen.append(_Routed(self._step, share, winner, first.numel(), chance))

    def finding(self) -> Finding | None:
        for where, rows in self._seen.items():
            full = [row for row in rows if row.share > 0.9]
            if len(full) < ENOUGH or len(full) < 0.8 * len(rows):
                continue
            third = len(full) // 3
            early = sum(row.chance for row in full[:third]) / third
            late = sum(row.chance for row in full[-third:]) / third
            if late < 0.85 * early:  # something is evening it out
                continue
            row = full[0]
            return Finding(
                rule=self.slug,
                step=row.step,
                place=where,
                detail=f"expert {row.winner} was the first choice of {100 * row.share:.0f} % of "
                f"{row.tokens} tokens, and one expert of more than 90 % in {len(full)} of "
                f"{len(rows)} batches, and its probability hardly falls ({early:.2f} to "
                f"{late:.2f})",
                remedy="add a load-balancing term to the loss",
                strength="suspicious",
            )
        return None
