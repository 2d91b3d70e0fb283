"""Numbers of single parameters become numbers of the modules that own them, in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Grouping:
    """How some parameters fall into layers."""

    layers: tuple[str, ...]
    kept: tuple[int, ...]
    """Which of the parameters belong to the model and have elements."""
    index: Tensor
    """The layer of each one kept, shape (len(kept),), on the CPU or the norms' device."""
    sizes: Tensor
    """Elements in each layer, shape (len(layers),), float64."""

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over each layer's parameters, float64, shape (len(layers),)."""
        zeros = torch.zeros(len(self.layers), dtype=torch.float64, device=values.device)
        return zeros.index_add_(0, self.index, values.double())

    def norm(self, norms: Tensor) -> Tensor:
        """Return the L2 norm of each layer, given that of each parameter."""
        return self.total(norms.double().square()).sqrt()

    def largest(self, values: Tensor) -> Tensor:
        """Return the largest of each layer's values; NaN where one is NaN."""
        start = values.new_full((len(self.layers),), -torch.inf)
        return start.scatter_reduce_(0, self.index, values, "amax")

    def smallest(self, values: Tensor) -> Tensor:
        """Return the smallest of each layer's values; NaN where one is NaN."""
        return -self.largest(-values)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return what a number of this kind is called, for each layer."""
        return tuple(f"layers/{layer}/{kind}" for layer in self.layers)


class LayerGroups:
    """The layers of a model: each module that owns parameters; the root's own are "model"."""

    def __init__(self, model: nn.Module) -> None:
        self._layer = {
            id(parameter): name.rpartition(".")[0] or "model"
            for name, parameter in model.named_parameters()
        }
        self._groupings: dict[tuple[int, ...], Grouping] = {}

    def layer_of(self, parameter: Tensor) -> str:
        """Return the layer that owns a parameter; "other" when the model does not know it."""
        return self._layer.get(id(parameter), "other")

    def of(self, parameters: Sequence[Tensor], device: torch.device) -> Grouping:
        """Return how `parameters` fall into layers; those that the model does not know are left."""
        key = tuple(map(id, parameters))
        if key not in self._groupings:
            self._groupings[key] = self._group(parameters, device)
        return self._groupings[key]

    def _group(self, parameters: Sequence[Tensor], device: torch.device) -> Grouping:
        kept = [
            place
            for place, parameter in enumerate(parameters)
            if id(parameter) in self._layer and parameter.numel()
        ]
        names = [self._layer[id(parameters[place])] for place in kept]
        layers = tuple(dict.fromkeys(names))
        index = torch.tensor([layers.index(name) for name in names], dtype=torch.int64)
        sizes = torch.zeros(len(layers), dtype=torch.float64)
        counts = [float(parameters[place].numel()) for place in kept]
        sizes.index_add_(0, index, torch.tensor(counts, dtype=torch.float64))
        return Grouping(layers, tuple(kept), index.to(device), sizes.to(device))
