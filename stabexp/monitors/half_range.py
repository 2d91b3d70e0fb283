"""How close activations come to the largest half-precision number, and how many gradients vanish.

A float16 number ends at 65,504. A replay in half precision that saw activations near it, or most
gradient elements become zero, has shown the mechanism of a precision fault; that float32 cures is
not enough to blame precision. Costs a pass over every activation, so it is for replays (source row
B5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor

HALF = (torch.float16, torch.bfloat16)


class HalfRange(Monitor):
    """Largest half-precision activation, count of non-finite ones, share of zero gradients."""

    _handles: list[Any] = PrivateAttr(default_factory=list)
    _largest: list[Tensor] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        for module in model.modules():
            self._handles.append(module.register_forward_hook(self._watch))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _watch(self, module: nn.Module, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        for tensor in outputs:
            if isinstance(tensor, Tensor) and tensor.dtype in HALF and tensor.numel():
                self._largest.append(tensor.detach().abs().amax().float())

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        measured: dict[str | tuple[str, ...], Tensor] = {}
        if self._largest:
            largest = torch.stack([value.cpu() for value in self._largest])
            finite = torch.isfinite(largest)
            measured["half/activation_absmax"] = torch.where(finite, largest, 0.0).amax()
            measured["half/activation_nonfinite"] = (~finite).sum().float()
        self._largest.clear()
        gradients = [p.grad for p in parameters if p.grad is not None]
        total = sum(gradient.numel() for gradient in gradients)
        if total:
            zeros = torch.stack([(gradient == 0).sum().cpu() for gradient in gradients]).sum()
            measured["half/zero_gradient_share"] = zeros.float() / total
        return measured
