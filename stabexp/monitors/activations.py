"""Range, size and sparsity of what each module puts out, in the first forward pass of a step.

Activations that grow from block to block, or a layer that puts out nothing but zeros, show before
the loss does. Modules without children are watched; what is computed between modules (a functional
ReLU) is part of no output here. Compiled models are left alone.
Source rows B5, B14.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.forward_watch import ForwardWatch, tensors_in

KINDS = ("activation_min", "activation_max", "activation_rms", "activation_zeros")


class Activations(Monitor):
    """Smallest, largest, root mean square and share of zeros of each module's output."""

    every: int = Field(20, ge=1)
    """Measure on steps divisible by this."""

    _watch: ForwardWatch | None = PrivateAttr(default=None)
    _leaves: dict[nn.Module, str] = PrivateAttr(default_factory=dict)
    _found: dict[str, Tensor] = PrivateAttr(default_factory=dict)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._watch = ForwardWatch(model)
        self._leaves = {
            module: name or "model"
            for name, module in self._watch.modules.items()
            if not any(True for _ in module.children()) and not isinstance(module, nn.Identity)
        }

    def detach(self) -> None:
        if self._watch is not None:
            self._watch.take_down()

    def step_begins(self) -> None:
        assert self._watch is not None
        self._found = {}
        self._watch.take_down()
        if not self._watch.compiled:
            for module in self._leaves:
                self._watch.after(module, self._see)

    def _see(self, module: nn.Module, inputs: Any, output: Any) -> None:
        name = self._leaves[module]
        found = tensors_in(output)
        # An evaluation between two steps makes no gradients.
        if name in self._found or not found or not torch.is_grad_enabled():
            return
        tensor = found[0].detach()
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        low, high = torch.aminmax(tensor)
        norm = torch.linalg.vector_norm(tensor, dtype=wide)
        filled = torch.count_nonzero(tensor)
        rms = norm / tensor.numel() ** 0.5
        zeros = 1 - filled / tensor.numel()
        self._found[name] = torch.stack([low.to(wide), high.to(wide), rms, zeros.to(wide)])

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        self.detach()
        if not self._found:
            return {}
        names = tuple(f"layers/{name}/{kind}" for name in self._found for kind in KINDS)
        device = gradient_norms.device
        values = torch.cat([each.to(device, torch.float64) for each in self._found.values()])
        self._found = {}
        return {names: values}
