"""Low-rank adapters are trained beside the frozen weights of a perceptron.

Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples

RANK = 8
ALPHA = 16.0


class Adapted(nn.Module):
    """A frozen linear layer plus `scale` × a product of two thin matrices, the second from zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(self.frozen.weight, nonlinearity="relu")
        self.frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, RANK))
        self.scale = ALPHA / RANK

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.frozen(x) + self.scale * (x @ self.down.T @ self.up.T)
        return out


class LowRankAdapter(BenchmarkTask):
    """Digits with frozen layers, adapters and a trained output layer, with AdamW."""

    healthy = Recipe(optimizer={"name": "adamw", "lr": 0.003}, clip=1.0, expected=0.8)
    wide = "5"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            Adapted(64, 64),
            nn.ReLU(),
            Adapted(64, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def class_count(self) -> int:
        return 10
