"""Gradient and weight norms per layer, every few steps.

Where the gradients are large, or vanish, over depth is the first thing people look at. The gradient
norms of the single parameters are known anyway (their total needs them), so only the weights are
read.
Source rows A6, A7, B3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn

from stabexp.monitors.base import Measurements, Monitor


class Layers(Monitor):
    """L2 norms of gradients and weights for each module that owns parameters."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    _names: dict[int, str] = PrivateAttr(default_factory=dict)
    _weights: dict[str, list[nn.Parameter]] = PrivateAttr(default_factory=dict)

    def attach(self, model: nn.Module) -> None:
        self._names.clear()
        self._weights.clear()
        for name, parameter in model.named_parameters():
            layer = name.rpartition(".")[0] or "model"
            self._names[id(parameter)] = layer
            self._weights.setdefault(layer, []).append(parameter)

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        groups: dict[str, list[int]] = {}
        for index, parameter in enumerate(parameters):
            layer = self._names.get(id(parameter))
            if layer is not None:
                groups.setdefault(layer, []).append(index)
        return {
            f"layers/{layer}/grad_norm": gradient_norms[indices].norm()
            for layer, indices in groups.items()
        }

    def after_update(self) -> Measurements:
        measured: dict[str, Any] = {}
        for layer, weights in self._weights.items():
            wide = torch.float64 if weights[0].dtype == torch.float64 else torch.float32
            # In the weights' own half precision the sum of squares would overflow.
            norms = torch._foreach_norm([weight.detach() for weight in weights], 2, dtype=wide)
            measured[f"layers/{layer}/weight_norm"] = torch.stack(norms).norm()
        return measured
