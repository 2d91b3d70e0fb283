"""Computes every cross-entropy of a loop in the form that cannot become infinite.

`torch.nn.functional.cross_entropy` is computed in float32, and is 0 where no target is left to
learn from. A loss written out as `log(softmax(x))`, with or without an ε or a clamp in between and
with or without a choice of elements, is computed from `log_softmax(x)`. Nothing else changes.
Source row C6.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from pydantic import PrivateAttr
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.compiled import run_eagerly
from stabexp.stabilisers.function_swap import Function, FunctionSwap
from stabexp.stabilisers.losses import safe_cross_entropy, widened

SOFTMAX: tuple[Function, ...] = (functional.softmax, torch.softmax, Tensor.softmax)
LOG: tuple[Function, ...] = (torch.log, Tensor.log)
SELECT: tuple[Function, ...] = (Tensor.__getitem__, torch.gather, Tensor.gather)
ADD: tuple[Function, ...] = (torch.add, Tensor.add, Tensor.__add__)
CLAMP: tuple[Function, ...] = (torch.clamp, Tensor.clamp, torch.clip, Tensor.clip)
TINY = 1e-3
"""What is added to probabilities, or they are clamped to, up to this is there to save the log."""


class SafeCrossEntropy(Stabiliser):
    """Computes cross-entropy, also one written out with log and softmax, in its safe form."""

    written_out: bool = True
    """Whether log(softmax(x)), with an ε or not, is computed from log_softmax(x)."""

    _mode: FunctionSwap | None = PrivateAttr(None)
    _batch: ExitStack = PrivateAttr(default_factory=ExitStack)
    _logs: dict[int, tuple[Any, int, Callable[[], Tensor]]] = PrivateAttr(default_factory=dict)
    _run: ExitStack = PrivateAttr(default_factory=ExitStack)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _rewritten: int = PrivateAttr(0)
    _told: bool = PrivateAttr(False)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        swapped: dict[Function, Function] = {functional.cross_entropy: _cross_entropy}
        if self.written_out:
            swapped |= dict.fromkeys(SOFTMAX, self._softmax)
            swapped |= dict.fromkeys(LOG, self._log)
            swapped |= dict.fromkeys(SELECT, self._select)
            swapped |= dict.fromkeys((*ADD, *CLAMP), self._shift)
        self._mode = FunctionSwap(swapped)
        self._rewritten, self._told = 0, step > 0
        self._events = run_eagerly(model, self._run, step=step)

    def batch_begins(self, step: int) -> None:
        assert self._mode is not None
        self._batch.enter_context(self._mode)

    def batch_ends(self) -> None:
        self._batch.close()
        self._logs.clear()

    def detach(self) -> None:
        self.batch_ends()
        self._run.close()

    def _softmax(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        given = args[0] if args else kwargs.get("input")
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if isinstance(given, Tensor) and isinstance(dim, int) and given.is_floating_point():
            self._remember(out, lambda: functional.log_softmax(widened(given), dim))
        return out

    def _remember(self, tensor: Tensor, log: Callable[[], Tensor]) -> None:
        self._logs[id(tensor)] = (weakref.ref(tensor), tensor._version, log)

    def _log_of(self, tensor: Any) -> Callable[[], Tensor] | None:
        """Return what gives the logarithm of a tensor of probabilities, None if it is none."""
        known = self._logs.get(id(tensor))
        if known is None or known[0]() is not tensor or known[1] != tensor._version:
            return None
        return known[2]

    def _select(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        log = self._log_of(args[0]) if args else None
        if log is not None:
            self._remember(out, lambda: function(log(), *args[1:], **kwargs))
        return out

    def _shift(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        numbers = [value for value in (*args[1:], *kwargs.values()) if value is not None]
        log = self._log_of(args[0]) if args else None
        small = all(
            isinstance(n, (int, float)) and (0 <= n <= TINY or n >= 1 - TINY) for n in numbers
        )
        if log is not None and small and (function not in ADD or all(n <= TINY for n in numbers)):
            self._remember(out, log)
        return out

    def _log(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        log = self._log_of(args[0]) if len(args) == 1 and not kwargs else None
        if log is None:
            return function(*args, **kwargs)
        self._rewritten += 1
        with torch.autocast(args[0].device.type, enabled=False):
            return log()

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        if self._rewritten and not self._told:
            self._told = True
            message = "a logarithm of a softmax is computed as log_softmax, in float32"
            events.append({"message": message})
        return events


def _cross_entropy(
    function: Function,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if size_average is not None or reduce is not None:  # long deprecated; torch says what they mean
        return function(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    return safe_cross_entropy(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )
