"""Whether what a normalisation layer is given varies at all.

A row (or a channel, for batch normalisation) that is constant is divided by √ε alone: its gradient
is up to 1/√ε times too large, and nothing of the input is left. Single constant rows are normal (a
padded token, a dead channel), so the share of them counts, not the smallest variance.
Source row A4.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from stabexp.monitors.forward_monitor import ForwardMonitor
from stabexp.monitors.forward_watch import ForwardWatch, tensors_in

ROWS = 1024
"""Rows of a layer's input that are looked at, evenly spread."""


class Normalisation(ForwardMonitor):
    """Smallest input variance of each normalisation layer, and share of its rows without any."""

    kinds: ClassVar = ("norm_variance", "norm_constant")

    every: int = Field(50, ge=1)
    """Measure on steps divisible by this."""

    def looks_at(self, module: nn.Module) -> bool:
        return is_normalisation(module)

    def hang(self, watch: ForwardWatch, module: nn.Module) -> None:
        watch.before(module, self._see)

    def _see(self, module: nn.Module, inputs: Any) -> None:
        found = tensors_in(inputs)
        if not found or not self.is_due(module):
            return
        rows = rows_of(module, found[0].detach())
        rows = rows.double() if rows.dtype == torch.float64 else rows.float()
        if isinstance(module, nn.RMSNorm) or "rms" in type(module).__name__.lower():
            # It does not subtract the mean: what it divides by is the mean square.
            variance = rows.square().mean(1)
            floor = torch.zeros_like(variance)
        else:
            mean = rows.mean(1, keepdim=True)
            variance = (rows - mean).square().mean(1)
            floor = (torch.finfo(found[0].dtype).eps * mean.squeeze(1)).square()
        constant = (variance <= floor + 1e-12).to(variance.dtype).mean()
        self.keep(self._names[module], [variance.amin(), constant])


def is_normalisation(module: nn.Module) -> bool:
    """Whether a module normalises: torch's own, and others that are called so and have no parts."""
    own = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _BatchNorm)
    named = type(module).__name__.endswith("Norm") and not any(True for _ in module.children())
    return isinstance(module, own) or named


def rows_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the elements that are normalised together, at most `ROWS` such rows of them.

    Args:
        module: A normalisation layer.
        x: Its input.

    Returns:
        Shape (rows, elements of a row).
    """
    if isinstance(module, _BatchNorm) and x.dim() >= 2:
        per_channel = isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))
        if per_channel or "Instance" not in type(module).__name__:
            return x.transpose(0, 1).reshape(x.shape[1], -1)[:ROWS]
    if isinstance(module, nn.GroupNorm):
        rows = x.reshape(x.shape[0] * module.num_groups, -1)
    else:
        shape = getattr(module, "normalized_shape", (x.shape[-1],))
        size = 1
        for length in (shape,) if isinstance(shape, int) else shape:
            size *= int(length)
        rows = x.reshape(-1, size)
    return rows[:: max(1, rows.shape[0] // ROWS)]
