"""A small vision transformer reads a digit as sixteen patches of 2 × 2 pixels.

Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples

WIDTH = 24
HEADS = 2


class Layer(nn.Module):
    """Attention over patches, then a network, each after a norm and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.network_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.out(mixed)
        out: Tensor = self.down(nn.functional.gelu(self.up(self.network_norm(x))))
        return x + out


class PatchTransformer(nn.Module):
    """(batch, 1, 8, 8) images → (batch, 10) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(4, WIDTH)
        self.positions = nn.Parameter(torch.randn(16, WIDTH) * 0.1)
        self.layers = nn.Sequential(Layer(), Layer())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.unfold(2, 2, 2).unfold(3, 2, 2).reshape(len(images), 16, 4)
        x = self.layers(self.patches(rows) + self.positions)
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits


class VisionTransformer(BenchmarkTask):
    """Digits in patches, with AdamW and clipping."""

    healthy = Recipe(
        optimizer={"name": "adamw", "lr": 0.005, "weight_decay": 0.01},
        warmup=30,
        clip=1.0,
        batch=32,
        expected=1.6,
        expected_by=300,
    )
    wide = "head"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return PatchTransformer()

    def class_count(self) -> int:
        return 10
