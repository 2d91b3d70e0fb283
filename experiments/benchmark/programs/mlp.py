"""A perceptron with one hidden layer says which digit an image shows."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples
from stabexp.tasks.mlp import MLP


class Perceptron(BenchmarkTask):
    """Digits with fully connected layers and SGD."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9}, expected=0.6)
    wide = "4"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return MLP(width=96, depth=1).model()

    def class_count(self) -> int:
        return 10
