"""A convolutional net says which digit an image shows."""

from __future__ import annotations

from torch import nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe
from experiments.benchmark.programs.inputs import digit_samples
from stabexp.tasks.cnn import CNN


class ConvolutionalNet(BenchmarkTask):
    """Digits with two convolutions and SGD."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.02, "momentum": 0.9}, expected=1.0)
    wide = "9"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return CNN(width=8, depth=2).model()

    def class_count(self) -> int:
        return 10
