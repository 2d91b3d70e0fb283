"""A residual network of layer-normalised branches says which digit an image shows."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples


class Branch(nn.Module):
    """x + branch(norm(x)), (batch, width) → (batch, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return x + out


class ResidualNet(BenchmarkTask):
    """Digits with three residual branches and AdamW."""

    healthy = Recipe(optimizer={"name": "adamw", "lr": 0.003, "weight_decay": 0.01}, expected=0.6)
    wide = "5"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        branches = [Branch(32) for _ in range(3)]
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), *branches, nn.Linear(32, 10))

    def class_count(self) -> int:
        return 10
