"""Two towers learn to match images of digits with their English words."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Dataset, Recipe, weighted
from experiments.benchmark.programs.inputs import shifted_digits
from stabexp.tasks.base import in_model_dtype
from stabexp.tasks.data import InMemory
from stabexp.tasks.two_tower import TwoTower, captions


class TwoTowers(BenchmarkTask):
    """Digits and words, contrastive, with AdamW and a capped temperature."""

    healthy = Recipe(optimizer={"name": "adamw", "lr": 0.002}, clip=5.0, expected=1.0)
    wide = "image.3"

    def dataset(self) -> Dataset:
        images, labels = shifted_digits()
        return InMemory(images, captions()[labels], torch.ones(len(labels)))

    def model(self) -> nn.Module:
        return TwoTower(width=32, embedding=16, max_logit_scale=50).model()

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, letters, weights = batch
        logits = model(in_model_dtype(model, images), letters)
        same = (letters[:, None] == letters).all(-1)
        right = logits.masked_fill(~same, float("-inf"))
        to_word = logits.logsumexp(1) - right.logsumexp(1)
        to_image = logits.logsumexp(0) - right.logsumexp(0)
        return weighted((to_word + to_image) / 2, weights)
