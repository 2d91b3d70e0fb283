"""A part of the forward pass that is run again inside the backward pass gives what it gave before.

Activation checkpointing drops activations and recomputes them. With another dropout mask the
gradient belongs to another function than the loss. The first module whose output differs for equal
input, or whose input differs, is where it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule, called_from, tensors

SAMPLED = 1024
"""Elements of each tensor that are compared."""


class RecomputationDiffers(Rule):
    """Equal inputs give equal outputs when a module is run again in the backward pass."""

    slug: ClassVar[str] = "recomputation_differs"
    watches_modules: ClassVar[bool] = True

    def __init__(self) -> None:
        self._active = False
        """True once a module was seen to run inside a backward pass; it costs nothing before."""
        self._calls: dict[int, list[list[Tensor]]] = {}
        self._open: dict[int, tuple[Tensor, list[Tensor] | None]] = {}
        self._step = 0
        self._told = False
        self._steps: set[int] = set()
        self._first: Finding | None = None

    def attach(self, watched: Watched) -> None:
        self._names = {id(module): name for name, module in watched.model.named_modules()}

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        self._step = step
        self._calls = {}
        self._open = {}

    def backward_begins(self, scalars: Sequence[Tensor]) -> None:
        self._told = False

    def module_entered(self, module: nn.Module, inputs: Any) -> None:
        again = torch._C._current_graph_task_id() != -1
        self._active |= again
        given = next((t for t in tensors(inputs) if t.is_floating_point()), None)
        if not self._active or given is None:
            return
        sample = _sample(given)
        if not again:
            self._open[id(module)] = (sample, None)
            return
        earlier = self._calls.get(id(module), [])
        match = next((pair for pair in earlier if _close(pair[0], sample)), None)
        self._open[id(module)] = (sample, match)
        if (
            match is None
            and earlier
            and not self._told
            and called_from("utils/checkpoint.py", depth=200)
        ):
            self._report(module, "got another input than in the forward pass")

    def module_left(self, module: nn.Module, output: Any) -> None:
        sample, match = self._open.pop(id(module), (None, None))
        made = next((t for t in tensors(output) if t.is_floating_point()), None)
        if sample is None or made is None:
            return
        if torch._C._current_graph_task_id() == -1:
            self._calls.setdefault(id(module), []).append([sample, _sample(made)])
        elif match is not None and not self._told and not _close(match[1], _sample(made)):
            self._report(module, "gave another output for the same input")

    def _report(self, module: nn.Module, what: str) -> None:
        self._told = True
        self._steps.add(self._step)
        kind = type(module).__name__
        name = self._names.get(id(module)) or kind
        if self._first is None:
            self._first = Finding(
                rule=self.slug,
                step=self._step,
                place=name,
                detail=f"{name} ({kind}) was run again inside the backward pass and {what}: the "
                "gradient belongs to another function than the loss",
                remedy="let the checkpoint restore the random streams (preserve_rng_state=True)",
            )

    def finding(self) -> Finding | None:
        return self._first if len(self._steps) >= 2 else None


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)].float().clone()


def _close(one: Tensor, other: Tensor) -> bool:
    """Return whether two samples agree but for rounding."""
    if one.shape != other.shape:
        return False
    top = float(one.abs().max()) if one.numel() else 0.0
    far = (one - other).abs() > 1e-3 * top
    return float(far.float().mean()) <= 1e-3 if one.numel() else True
