"""Mean, deviation, extremes and share of zeros of each layer's gradient.

A gradient that is mostly zeros, or whose mean is far from zero beside its deviation, says what its
norm does not. Three passes over the gradients (sum, extremes, zeros); the deviation comes from the
norm, which is known. Counting what is not finite would cost more than all of them, and the sum
shows it for nothing.
Source rows A6, A7.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.element_figures import extremes, mean_and_variance, zero_share
from stabexp.monitors.layer_groups import LayerGroups


class Gradients(Monitor):
    """Mean, standard deviation, largest, smallest and share of zeros per layer, before clipping."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    _groups: LayerGroups | None = PrivateAttr(default=None)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._groups = LayerGroups(model)

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        assert self._groups is not None
        group = self._groups.of(parameters, gradient_norms.device)
        gradients = [parameters[place].grad for place in group.kept]
        found = [gradient.detach() for gradient in gradients if gradient is not None]
        if not found:
            return {}
        mean, variance = mean_and_variance(found, gradient_norms[list(group.kept)], group)
        smallest, largest = extremes(found, group)
        return {
            group.names("grad_mean"): mean,
            group.names("grad_std"): variance.sqrt(),
            group.names("grad_max"): largest,
            group.names("grad_min"): smallest,
            group.names("grad_zeros"): zero_share(found, group),
        }
