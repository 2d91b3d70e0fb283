"""Before the first update every layer passes on what it gets: nothing grows, fades or dies.

Seen in the first forward pass: the size of what each layer puts out, over depth; rectifiers that
are zero for every sample; sigmoids at their ends; residual joins that broadcast (source row B8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Call, Finding, Rule, place

DEEP, CHANGE = 4, 30.0
"""Layers of one kind, and the ratio of sizes over them, from which on signals grow or fade."""
DEAD, SATURATED = 0.6, 0.6


def first_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a module puts out, the first of several."""
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) and output.is_floating_point() else None


class SignalOverDepth(Rule):
    """Activations have about the same size from the first layer to the last."""

    slug: ClassVar[str] = "signal_grows"
    watches_modules: ClassVar[bool] = True

    def __init__(self) -> None:
        self._step = -1
        self._sizes: dict[str, list[tuple[str, float]]] = {}
        self._done = False

    def attach(self, watched: Watched) -> None:
        self._names = {id(module): name for name, module in watched.model.named_modules()}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._done = True

    def module_left(self, module: nn.Module, output: Any) -> None:
        weight = getattr(module, "weight", None)
        made = first_tensor(output)
        if self._done or made is None or id(module) not in self._names:
            return
        if not isinstance(weight, Tensor) or weight.dim() < 2 or isinstance(module, nn.Embedding):
            return
        size = float(made.detach().float().square().mean().sqrt())
        if size > 0:  # a branch that starts at zero is meant to
            kind = type(module).__name__
            self._sizes.setdefault(kind, []).append((self._names[id(module)], size))

    def finding(self) -> Finding | None:
        for kind, every in self._sizes.items():
            sizes = every[:-1]  # the last one makes the outputs, in units of its own
            if len(sizes) < DEEP:
                continue
            first, last = sizes[0][1], sizes[-1][1]
            ratio = last / first
            if 1 / CHANGE < ratio < CHANGE or _order([size for _, size in sizes]) < 0.8:
                continue
            grows = ratio > 1
            factor = ratio ** (1 / (len(sizes) - 1))
            return Finding(
                rule="signal_grows" if grows else "signal_fades",
                step=0,
                place=sizes[-1][0],
                detail=f"the outputs of {len(sizes)} {kind} layers go from {first:.3g} "
                f"({sizes[0][0]}) to "
                f"{last:.3g} ({sizes[-1][0]}), {factor:.3g} times per layer",
                remedy="initialise with a gain that fits the activation (He for ReLU, Xavier for "
                "tanh), or add normalisation or residual connections",
                strength="suspicious",
            )
        return None


def _order(values: Sequence[float]) -> float:
    """Return how steadily values rise or fall: |Spearman's rank correlation with their index|."""
    n = len(values)
    ranks = {index: rank for rank, index in enumerate(sorted(range(n), key=lambda i: values[i]))}
    square = sum((index - ranks[index]) ** 2 for index in range(n))
    return abs(1 - 6 * square / (n * (n * n - 1)))


class UnitsAlive(Rule):
    """Rectifiers let something through, and sigmoids are not at their ends."""

    slug: ClassVar[str] = "dead_units"
    watches: ClassVar[frozenset[str]] = frozenset({"relu", "relu_", "tanh", "sigmoid"})

    def __init__(self) -> None:
        self._done = False
        self._seen: list[tuple[str, str, float, int]] = []

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._done = True

    def called(self, call: Call) -> None:
        made = call.result
        if self._done or not isinstance(made, Tensor) or not made.requires_grad:
            return
        if made.dim() < 2 or made.shape[0] < 8 or made.numel() < 64:
            return
        made = made.detach()
        if call.name in {"relu", "relu_"}:
            unit = 1 if made.dim() == 4 else made.dim() - 1  # channels, or features
            others = [dim for dim in range(made.dim()) if dim != unit]
            share, count = _all_zero(made, others), made.shape[unit]
            self._seen.append(("dead_units", place(), share, count))
            return
        low = -1.0 if call.name == "tanh" else 0.0
        ends = (made < low + 0.01 * (1 - low)) | (made > 1 - 0.01 * (1 - low))
        share = float(ends.float().mean())
        self._seen.append(("saturated_units", place(), share, made.shape[-1]))

    def finding(self) -> Finding | None:
        worst = max(self._seen, key=lambda seen: seen[2], default=None)
        if worst is None:
            return None
        name, where, share, count = worst
        if name == "dead_units" and share > DEAD:
            return Finding(
                rule=name,
                step=0,
                place=where,
                detail=f"{share:.0%} of {count} rectified units are zero for every sample of the "
                "first "
                "batch, so they pass no gradient back",
                remedy="look at the bias and the scale of the layer before; initialise biases "
                "with 0, "
                "or use a leaky rectifier",
                strength="suspicious",
            )
        if name == "saturated_units" and share > SATURATED:
            return Finding(
                rule=name,
                step=0,
                place=where,
                detail=f"{share:.0%} of the outputs lie within 1 % of an end of their range in "
                "the first "
                "batch, where the slope is nearly zero",
                remedy="initialise the layer before with a smaller deviation, or scale its inputs",
                strength="suspicious",
            )
        return None


def _all_zero(made: Tensor, dims: Sequence[int]) -> float:
    """Return the share of units that are zero over all of `dims`."""
    zero = made == 0
    for dim in sorted(dims, reverse=True):
        zero = zero.all(dim)
    return float(zero.float().mean())


class JoinBroadcasts(Rule):
    """What is added at a residual join has one shape."""

    slug: ClassVar[str] = "join_broadcasts"
    watches: ClassVar[frozenset[str]] = frozenset(
        {"add", "__add__", "__radd__", "__iadd__", "add_"}
    )

    def __init__(self) -> None:
        self._found: Finding | None = None
        self._rows = 0
        self._step = 0

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step, self._rows = step, len(ids)

    def called(self, call: Call) -> None:
        if self._found or len(call.args) < 2:
            return
        a, b = call.args[:2]
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.dim() == b.dim():
            return
        if not (a.requires_grad and b.requires_grad):
            return
        longer, shorter = (a, b) if a.dim() > b.dim() else (b, a)
        rows = self._rows
        if rows < 2 or shorter.dim() < 2 or longer.shape[0] != rows or shorter.shape[0] != rows:
            return
        if longer.shape[1] == 1 and call.result.shape[:2] == torch.Size((rows, rows)):
            self._found = Finding(
                rule=self.slug,
                step=self._step,
                place=place(),
                detail=f"shapes {tuple(a.shape)} and {tuple(b.shape)} are added to "
                f"{tuple(call.result.shape)}: every sample is added to every other",
                remedy="bring both branches to one shape, for example with squeeze(1)",
            )

    def finding(self) -> Finding | None:
        return self._found
