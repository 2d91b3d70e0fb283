"""Range, size and sparsity of what each module puts out, in the first forward pass of a step.

Activations that grow from block to block, or a layer that puts out nothing but zeros, show before
the loss does. Modules without children are watched; what is computed between modules (a functional
ReLU) is part of no output here. Compiled models are left alone.
Source rows B5, B14.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from stabexp.monitors.forward_monitor import ForwardMonitor
from stabexp.monitors.forward_watch import ForwardWatch, tensors_in


class Activations(ForwardMonitor):
    """Smallest, largest, root mean square and share of zeros of each module's output."""

    kinds: ClassVar = ("activation_min", "activation_max", "activation_rms", "activation_zeros")

    every: int = Field(20, ge=1)
    """Measure on steps divisible by this."""

    def looks_at(self, module: nn.Module) -> bool:
        return not any(True for _ in module.children()) and not isinstance(module, nn.Identity)

    def hang(self, watch: ForwardWatch, module: nn.Module) -> None:
        watch.after(module, self._see)

    def _see(self, module: nn.Module, inputs: Any, output: Any) -> None:
        found = tensors_in(output)
        if not found or not self.is_due(module):
            return
        tensor = found[0].detach()
        wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
        low, high = torch.aminmax(tensor)
        norm = torch.linalg.vector_norm(tensor, dtype=wide)
        filled = torch.count_nonzero(tensor)
        rms = norm / tensor.numel() ** 0.5
        zeros = 1 - filled / tensor.numel()
        self.keep(self._names[module], [low.to(wide), high.to(wide), rms, zeros.to(wide)])
