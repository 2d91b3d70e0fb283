"""Mean, variance and largest size of each layer's weights.

Weights grow long before a loss does. Two passes over them (sum and extremes); the variance comes
from the norm, which is known.
Source rows A3, B1, B3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.element_figures import extremes, mean_and_variance
from stabexp.monitors.layer_groups import LayerGroups


class Weights(Monitor):
    """Mean, variance and largest absolute weight of each layer, after the update."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    _groups: LayerGroups | None = PrivateAttr(default=None)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._groups = LayerGroups(model)

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        assert self._groups is not None
        group = self._groups.of(parameters, parameter_norms.device)
        found = [parameters[place].detach() for place in group.kept]
        if not found:
            return {}
        mean, variance = mean_and_variance(found, parameter_norms[list(group.kept)], group)
        low, high = extremes(found, group)
        return {
            group.names("weight_mean"): mean,
            group.names("weight_variance"): variance,
            group.names("weight_max"): torch.maximum(low.abs(), high.abs()),
        }
