"""Digits with importance weights: a few samples count hundreds of times, as in off-policy learning.

The weights are right (they correct for how the samples were drawn), so no sample is bad. But the
gradient comes in rare bursts, and training with such weights is known to need clipping.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.tasks.base import Dataset, in_model_dtype
from stabexp.tasks.data import InMemory
from stabexp.tasks.digits import digits
from stabexp.tasks.mlp import MLP


class WeightedMLP(MLP):
    """Say which digit an image shows, where every sample has an importance weight."""

    heavy_share: float = Field(0.01, gt=0, lt=1)
    """Share of the samples with a large weight."""

    heavy_weight: float = Field(100.0, gt=0)
    """Their weight; the others count once."""

    def dataset(self) -> Dataset:
        images, labels = digits()
        generator = torch.Generator().manual_seed(7)
        heavy = torch.rand(len(labels), generator=generator) < self.heavy_share
        return InMemory(images, labels, torch.where(heavy, self.heavy_weight, 1.0))

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, labels, weights = batch
        losses = F.cross_entropy(model(in_model_dtype(model, images)), labels, reduction="none")
        return (weights.to(losses.dtype) * losses).mean()
