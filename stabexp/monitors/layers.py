"""Gradient and weight norms per layer, every few steps.

Where the gradients are large, or vanish, over depth is the first thing people look at. The norms of
the single parameters are known anyway (their totals need them), so nothing is read again.
Source rows A6, A7, B3.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.layer_groups import LayerGroups


class Layers(Monitor):
    """L2 norms of gradients and weights for each module that owns parameters."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    _groups: LayerGroups | None = PrivateAttr(default=None)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._groups = LayerGroups(model)

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        return self._norms("grad_norm", parameters, gradient_norms)

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        return self._norms("weight_norm", parameters, parameter_norms)

    def _norms(self, kind: str, parameters: Sequence[Tensor], norms: Tensor) -> Measurements:
        assert self._groups is not None
        group = self._groups.of(parameters, norms.device)
        if not group.kept:
            return {}
        known = norms if len(group.kept) == len(norms) else norms[list(group.kept)]
        return {group.names(kind): group.norm(known)}
