"""Real images that are always there: scikit-learn's 1,797 handwritten digits of 8 × 8 pixels."""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.tasks.base import Dataset, Task, in_model_dtype
from stabexp.tasks.data import InMemory

Norm = Literal["none", "batch", "layer"]
"""What normalises a hidden layer: nothing, over the batch, or over each sample's features."""


class DigitsTask(Task):
    """Say which digit an image shows."""

    norm: Norm = "none"
    """Normalisation after each hidden layer: none, batch or layer."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping a hidden value."""

    init_scale: float = Field(1.0, ge=0)
    """Factor on all weights at the start; 1 is He's normal start for hidden layers."""

    def dataset(self) -> Dataset:
        return InMemory(*digits())

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(in_model_dtype(model, images)), labels)

    def class_count(self) -> int:
        return 10


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return images (1797, 1, 8, 8) float32 in 0..1 and labels (1797,) int64. Do not write."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(images).float().div(16).reshape(-1, 1, 8, 8)
    return pixels, torch.from_numpy(labels).long()


def initialise(model: nn.Sequential, *, scale: float) -> None:
    """Draw weights by He's rule, the last layer's by 1/√inputs, all times `scale`; biases are 0."""
    layers = [module for module in model if isinstance(module, (nn.Linear, nn.Conv2d))]
    for layer in layers:
        if layer is layers[-1]:
            nn.init.normal_(layer.weight, std=scale * layer.weight[0].numel() ** -0.5)
        else:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            layer.weight.data.mul_(scale)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
