"""A perceptron with batch normalisation says which digit an image shows."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples
from stabexp.tasks.mlp import MLP


class BatchNormNet(BenchmarkTask):
    """Digits with two batch-normalised layers and SGD."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9}, expected=0.6)
    wide = "9"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return MLP(width=48, depth=2, norm="batch").model()

    def class_count(self) -> int:
        return 10
