"""Keeps what half precision harms in float32: norms, softmax, losses and positional encodings.

In float16 an exponential overflows at 11.1, a sum of squares at a root mean square of 256 ÷ √n, and
in bfloat16 positions beyond 256 are no longer told apart. Modules compute in float32 as if it were
written there by hand; functions that a model calls directly are met on the way into torch. Source
rows A10, B9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.compiled import run_eagerly
from stabexp.stabilisers.exact_modules import HALF, ExactModules, mapped
from stabexp.stabilisers.function_swap import Function, FunctionSwap
from stabexp.stabilisers.losses import widened
from stabexp.stabilisers.model_parts import is_norm, is_position
from stabexp.state.module_state import uncompiled

OPERATIONS: Mapping[str, tuple[Function, ...]] = {
    "softmax": (
        functional.softmax,
        torch.softmax,
        Tensor.softmax,
        functional.log_softmax,
        torch.log_softmax,
        Tensor.log_softmax,
        torch.logsumexp,
        Tensor.logsumexp,
    ),
    "norm": (
        functional.layer_norm,
        torch.layer_norm,
        functional.group_norm,
        torch.group_norm,
        functional.rms_norm,
        torch.rms_norm,
        functional.normalize,
    ),
    "loss": (
        functional.cross_entropy,
        functional.nll_loss,
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        functional.kl_div,
        functional.binary_cross_entropy_with_logits,
        functional.cosine_similarity,
        functional.cosine_embedding_loss,
    ),
    "matmul": (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum),
    "exp": (torch.exp, Tensor.exp, torch.pow, Tensor.pow, Tensor.__pow__, torch.square),
}
"""Group of operations → the functions it is called by."""


class KeepFp32(Stabiliser):
    """Norms, softmax, losses and positional encodings compute in float32 in half precision."""

    modules: list[str] | Literal["auto"] = "auto"
    """Modules by name that compute in float32; auto: norms, softmax, losses, positions."""

    operations: list[Literal["softmax", "norm", "loss", "matmul", "exp"]] = Field(
        ["softmax", "norm", "loss"]
    )
    """Groups of functions that compute in float32 wherever they are called from; matmul is for
    attention scores that overflow, and slows everything."""

    _run: ExitStack = PrivateAttr(default_factory=ExitStack)
    _batch: ExitStack = PrivateAttr(default_factory=ExitStack)
    _swapped: dict[Function, Function] = PrivateAttr(default_factory=dict)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Raises ConfigError when the model has no such module."""
        own = uncompiled(model)
        names = self._chosen(own) if self.modules == "auto" else list(self.modules)
        exact = ExactModules(model, names, section="stabilisers.keep_fp32.modules")
        self._run.callback(exact.remove)
        self._events = run_eagerly(model, self._run, step=step)
        self._swapped = {
            function: _in_float32(narrows=group != "loss")
            for group in self.operations
            for function in OPERATIONS[group]
        }
        message = f"float32 in {', '.join(names) or 'no module'}"
        self._events += [{"message": message, "modules": names}] if not step else []

    def _chosen(self, model: nn.Module) -> list[str]:
        kept = (nn.Softmax, nn.LogSoftmax, nn.Softmin, nn.modules.loss._Loss)
        return [
            name
            for name, module in model.named_modules()
            if name and (isinstance(module, kept) or is_norm(module) or is_position(name, module))
        ]

    def batch_begins(self, step: int) -> None:
        if self._swapped:
            self._batch.enter_context(FunctionSwap(self._swapped))

    def batch_ends(self) -> None:
        self._batch.close()

    def detach(self) -> None:
        self._batch.close()
        self._run.close()

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events


def _in_float32(*, narrows: bool) -> Function:
    """Return what calls a function in float32.

    Outside autocast the result goes back to the half format that came in, where `narrows`.
    """

    def wide(function: Function, *args: Any, **kwargs: Any) -> Any:
        halves: list[Tensor] = []

        def widen(tensor: Tensor) -> Tensor:
            if tensor.dtype in HALF:
                halves.append(tensor)
            return widened(tensor)

        given, named = mapped(args, widen), mapped(kwargs, widen)
        if not halves:
            return function(*args, **kwargs)
        kind = halves[0].device.type
        cast = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False):
            result = function(*given, **named)
        if cast or not narrows:
            return result
        asked = named.get("dtype")
        narrow = halves[0].dtype if asked is None else asked
        return mapped(result, lambda t: t.to(narrow) if t.dtype == torch.float32 else t)

    return wide
