"""An autoencoder squeezes images of digits through eight numbers and draws them again."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe, weighted
from experiments.benchmark.programs.inputs import digit_samples
from stabexp.tasks.base import in_model_dtype


class Autoencoder(BenchmarkTask):
    """Digits, mean squared error over 64 pixels, SGD with momentum."""

    healthy = Recipe(optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9}, expected=3.5)
    wide = "7"

    def dataset(self) -> Dataset:
        return digit_samples()

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 48),
            nn.Tanh(),
            nn.Linear(48, 8),
            nn.Tanh(),
            nn.Linear(8, 48),
            nn.Tanh(),
            nn.Linear(48, 64),
        )

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, _, weights = batch
        images = in_model_dtype(model, images)
        errors = (model(images) - images.flatten(1)).square().sum(1)
        return weighted(errors, weights)
