"""A variational autoencoder draws digits from eight random numbers.

Source: Kingma and Welling 2013, "Auto-Encoding Variational Bayes".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe, weighted
from experiments.benchmark.programs.inputs import digit_samples
from stabexp.tasks.base import in_model_dtype

LATENT = 8


class Coder(nn.Module):
    """(batch, 1, 8, 8) images → logits of pixels (batch, 64), means and log variances of codes."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 48)
        self.code = nn.Linear(48, 2 * LATENT)
        self.drawing = nn.Sequential(nn.Linear(LATENT, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.code(self.hidden(images.flatten(1)).relu()).chunk(2, -1)
        noise = torch.randn_like(mean)
        return self.drawing(mean + noise * (log_variance / 2).exp()), mean, log_variance


class VariationalAutoencoder(BenchmarkTask):
    """Digits, with AdamW."""

    healthy = Recipe(optimizer={"name": "adamw", "lr": 0.003}, clip=50.0, expected=32.0)
    wide = "drawing.2"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return Coder()

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, _, weights = batch
        images = in_model_dtype(model, images)
        pixels, mean, log_variance = model(images)
        drawn = F.binary_cross_entropy_with_logits(pixels, images.flatten(1), reduction="none")
        surprise = (log_variance.exp() + mean.square() - 1 - log_variance).sum(1) / 2
        return weighted(drawn.sum(1) + surprise, weights)
