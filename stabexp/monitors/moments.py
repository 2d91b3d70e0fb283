"""What the optimizer remembers: the size of its momenta, and the smallest it will divide by.

An update is as large as momentum ÷ √v. A second moment near zero under a momentum that is not, or
state younger than the weights (a restart without it), explains a jump that no gradient shows.
Source row A3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.element_figures import extremes
from stabexp.monitors.layer_groups import LayerGroups


class Moments(Monitor):
    """Norm of the first moment, smallest √v and age of the optimizer's state, per layer."""

    every: int = Field(50, ge=1)
    """Measure on steps divisible by this."""

    _groups: LayerGroups | None = PrivateAttr(default=None)
    _optimizers: tuple[Optimizer, ...] = PrivateAttr(default=())

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._groups = LayerGroups(model)
        self._optimizers = tuple(optimizers)

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        device = parameter_norms.device
        states = {
            parameter: state
            for optimizer in self._optimizers
            for parameter, state in optimizer.state.items()
        }
        measured: dict[str | tuple[str, ...], Tensor] = {}
        for key, kind in (("exp_avg", "moment_norm"), ("momentum_buffer", "moment_norm")):
            measured |= self._norms(states, key, kind, device)
        measured |= self._smallest(states, device)
        ages = [state["step"] for state in states.values() if "step" in state]
        if ages:
            measured["moments/age"] = torch.as_tensor(ages[0])
        return measured

    def _norms(
        self,
        states: dict[Tensor, dict[str, Tensor]],
        key: str,
        kind: str,
        device: torch.device,
    ) -> Measurements:
        held = [p for p, state in states.items() if state.get(key) is not None]
        assert self._groups is not None
        group = self._groups.of(held, device)
        if not group.kept:
            return {}
        moments = [states[held[place]][key] for place in group.kept]
        wide = torch.float64 if moments[0].dtype == torch.float64 else torch.float32
        norms = torch._foreach_norm(moments, 2, dtype=wide)
        return {group.names(kind): group.norm(torch.stack([each.to(device) for each in norms]))}

    def _smallest(
        self, states: dict[Tensor, dict[str, Tensor]], device: torch.device
    ) -> Measurements:
        key = "exp_avg_sq"
        held = [p for p, state in states.items() if state.get(key) is not None]
        assert self._groups is not None
        group = self._groups.of(held, device)
        if not group.kept:
            return {}
        low, _ = extremes([states[held[place]][key] for place in group.kept], group)
        return {group.names("moment_sqrt_v_min"): low.sqrt()}
