"""Every attention in the first forward pass of a step: its logits, its entropy, its empty rows.

Whether a model calls `scaled_dot_product_attention`, `nn.MultiheadAttention` or writes the softmax
out, the same few operations of torch are run, and a dispatch mode sees them while the model's own
forward is running. A softmax counts as attention when it is over the last dimension of four, or of
three of which the last two are equal. For the fused kernels the scores of a sample of the queries
are computed again.

Not seen: attention in kernels that torch does not know (the flash_attn package, xformers), in
compiled code, and outside of any module's forward.
Source row A4.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stabexp.monitors.forward_monitor import ForwardMonitor
from stabexp.monitors.forward_watch import ForwardWatch

BATCH = 4
"""Samples of the batch that are looked at."""

ROWS = 64
"""Queries of each that are looked at, evenly spread."""


class Attention(ForwardMonitor):
    """Largest logit, mean entropy (nats) and share of empty or NaN rows of each attention."""

    kinds: ClassVar = ("attention_logit", "attention_entropy", "attention_empty")

    every: int = Field(50, ge=1)
    """Measure on steps divisible by this."""

    _inside: list[str] = PrivateAttr(default_factory=list)
    _mode: Any = PrivateAttr(default=None)

    def looks_at(self, module: nn.Module) -> bool:
        return True

    def hang(self, watch: ForwardWatch, module: nn.Module) -> None:
        watch.before(module, self._enter)
        watch.after(module, self._leave)

    def step_begins(self) -> None:
        self._inside = []
        super().step_begins()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if not self._inside:
            if not torch.is_grad_enabled():
                return  # an evaluation between two steps
            self._mode = _Operations(self)
            self._mode.__enter__()
        self._inside.append(self._names[module])

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._inside and self._inside[-1] == self._names[module]:
            self._inside.pop()
            if not self._inside and self._mode is not None:
                self._mode.__exit__(None, None, None)
                self._mode = None

    @torch.no_grad()
    def see(self, logits: Tensor, weights: Tensor) -> None:
        """Take note of the attention of the module that is running now.

        Args:
            logits: Scores with their mask, (…, queries, keys); masked ones are -inf or very small.
            weights: Their softmax.
        """
        name = self._inside[-1]
        if name in self._found:
            return
        wide = weights.double() if weights.dtype == torch.float64 else weights.float()
        entropy = torch.special.entr(wide).sum(-1).nan_to_num(0.0).mean()
        # All zeros, or NaN, which is larger than nothing.
        empty = (~(wide.amax(-1) > 0)).to(wide.dtype).mean()
        largest = logits.amax().to(wide.dtype)
        self.keep(name, [largest, entropy, empty])


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Shows a monitor the operations that are attention, and changes nothing."""

    def __init__(self, monitor: Attention) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._monitor = monitor

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let `torch.compile` go on: beneath any other mode it would run code uncompiled."""
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Say the same to earlier versions of torch."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if type(out) not in {Tensor, tuple} or torch.compiler.is_compiling():
            return out  # what a compiler traces has no values
        name = func._schema.name
        if name in {"aten::_softmax", "aten::_safe_softmax"}:
            _written_out(self._monitor, args[0], int(args[1]), out)
        elif name.startswith("aten::_scaled_dot_product_") and "backward" not in name:
            given = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
            _fused(self._monitor, given | (kwargs or {}))
        return out


def _written_out(monitor: Attention, logits: Tensor, dim: int, weights: Tensor) -> None:
    shape = logits.shape
    square = len(shape) == 3 and shape[-1] == shape[-2]
    if dim % len(shape) != len(shape) - 1 or not (len(shape) == 4 or square):
        return
    every = max(1, shape[-2] // ROWS)
    chosen = slice(0, BATCH) if len(shape) == 4 else slice(None, None, max(1, shape[0] // BATCH))
    monitor.see(logits[chosen].detach(), weights[chosen, ..., ::every, :].detach())


@torch.no_grad()
def _fused(monitor: Attention, given: dict[str, Any]) -> None:
    query, key = given["query"].detach()[:BATCH], given["key"].detach()[:BATCH]
    if query.dim() != 4:
        return
    queries, keys = query.shape[-2], key.shape[-2]
    rows = torch.arange(0, queries, max(1, queries // ROWS), device=query.device)
    scale = given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast(query.device.type, enabled=False):
        heads = query.shape[1] // key.shape[1]
        wide = key.float().repeat_interleave(heads, 1) if heads > 1 else key.float()
        logits = query[:, :, rows].float() @ wide.transpose(-2, -1) * scale
        mask = given.get("attn_mask", given.get("attn_bias"))
        if mask is not None:
            whole = (given["query"].shape[0], query.shape[1], queries, keys)
            shown = mask.detach().broadcast_to(whole)[:BATCH, :, rows]
            logits = (
                logits.masked_fill(~shown, -torch.inf)
                if shown.dtype == torch.bool
                else logits + shown
            )
        if given.get("is_causal"):
            later = torch.arange(keys, device=query.device) > rows.unsqueeze(1)
            logits = logits.masked_fill(later, -torch.inf)
        # A row that is masked whole is given zeros by the kernels, and NaN by a softmax.
        weights = logits.softmax(-1)
    monitor.see(logits, weights)
