"""Faults that are nothing but a wrong setting: rate, warmup, batch, decay, precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from experiments.benchmark.faults.base import Fault, columns
from experiments.benchmark.programs.base import Recipe
from stabexp.tasks.data import InMemory


class Reconfigured(Fault):
    """Other settings than the recipe's."""

    def __init__(
        self,
        *,
        rate: float = 1.0,
        optimizer: Mapping[str, Any] | None = None,
        watched: bool = False,
        **fields: Any,
    ) -> None:
        """Multiply the rate by `rate`, then set optimizer keys and fields of the recipe."""
        self.scale = rate
        self.optimizer = dict(optimizer or {})
        self.fields = fields
        self.watches_progress = watched

    def recipe(self, recipe: Recipe) -> Recipe:
        optimizer = {**recipe.optimizer, "lr": recipe.lr * self.scale, **self.optimizer}
        return replace(recipe, optimizer=optimizer, **self.fields)


class HeavyWeights(Fault):
    """A few samples count many times, as importance weights do, and nothing clips.

    The weights are right, so no sample is bad; but the gradient comes in bursts.
    """

    def __init__(self, *, heavy: int, samples: int, weight: float, clip: float | None) -> None:
        """Let `heavy` of the `samples` count `weight` times; the recipe clips at `clip`."""
        chosen = torch.randperm(samples, generator=torch.Generator().manual_seed(samples))
        self.heavy = chosen[:heavy].tolist()
        self.weight = weight
        self.clip = clip

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, clip=self.clip)

    def dataset(self, data: InMemory) -> InMemory:
        *others, weights = columns(data)
        weights[self.heavy] = self.weight
        return InMemory(*others, weights)
