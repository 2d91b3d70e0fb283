"""How far one update moves each layer, relative to its size: about 1e-3 in healthy training.

The ratio is that of a sample of each parameter's elements, evenly spread, before and after the
update; with a thousand of them it is within a few per cent of the whole, and nothing of the model's
size has to be kept or copied.
Source row B14; Stanford CS231n notes, "Ratio of weights:updates".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.layer_groups import LayerGroups


class Updates(Monitor):
    """Update ratio ‖ΔW‖ / ‖W‖ of each layer."""

    every: int = Field(10, ge=1)
    """Measure on steps divisible by this."""

    sample: int | None = Field(1024, ge=1)
    """Elements of each parameter to measure on; null for all, which keeps a copy of the model."""

    _groups: LayerGroups | None = PrivateAttr(default=None)
    _parameters: tuple[Tensor, ...] = PrivateAttr(default=())
    _before: list[Tensor] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._groups = LayerGroups(model)
        self._parameters = tuple(p for p in model.parameters() if p.numel() and p.requires_grad)

    def step_begins(self) -> None:
        self._before = []

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        if not self._before:  # with several optimizers, before the first of them moves anything
            self._before = [self._chosen(p).clone() for p in self._parameters]
        return {}

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        assert self._groups is not None
        if not self._before:
            return {}
        group = self._groups.of(self._parameters, parameter_norms.device)
        after = [self._chosen(p) for p in self._parameters]
        moved = self._norms(list(torch._foreach_sub(after, self._before)), parameter_norms.device)
        size = self._norms(self._before, parameter_norms.device)
        whole = [p.numel() / b.numel() for p, b in zip(self._parameters, self._before, strict=True)]
        share = torch.tensor(whole, dtype=torch.float64).sqrt().to(moved.device)
        return {group.names("update_ratio"): group.norm(moved * share) / group.norm(size * share)}

    def _chosen(self, parameter: Tensor) -> Tensor:
        flat = parameter.detach().reshape(-1)
        if self.sample is None or flat.numel() <= self.sample:
            return flat
        # An odd stride, for an even one meets the same columns of a matrix in every row.
        return flat[:: (flat.numel() // self.sample) | 1]

    def _norms(self, tensors: list[Tensor], device: torch.device) -> Tensor:
        wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
        return torch.stack([n.to(device) for n in torch._foreach_norm(tensors, 2, dtype=wide)])
