"""Two towers, one for images of digits and one for their English words, that learn to agree.

The loss is CLIP's, over the pairs of the batch: find the caption of an image and the image of a
caption. Several images of a batch show the same digit, so each of them counts as right; then the
loss of towers that know nothing is about ln 10 whatever the batch size, and 0 can be reached. The
learnable temperature is exp(t): the part that explodes.
Source: Radford et al. 2021, "Learning Transferable Visual Models From Natural Language
Supervision" (CLIP).
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.tasks.base import Dataset, Task, in_model_dtype
from stabexp.tasks.data import InMemory
from stabexp.tasks.digits import digits

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
"""The captions, by digit."""

LONGEST = 5
"""Letters in the longest word; shorter ones end in token 0."""


class TwoTower(Task):
    """Match images of digits with their English words (contrastive, as CLIP)."""

    width: int = Field(64, ge=1)
    """Size of each tower's hidden layer."""

    embedding: int = Field(32, ge=2)
    """Size of the space in which image and word are compared."""

    logit_scale: float = Field(5.0, gt=0)
    """Factor on the cosine similarities at the start (CLIP: 14.3, for towers far wider)."""

    max_logit_scale: float | None = Field(None, gt=0)
    """Upper limit of that factor (CLIP uses 100); the default is none."""

    init_scale: float = Field(1.0, ge=0)
    """Factor on torch's default linear weights at the start."""

    def dataset(self) -> Dataset:
        images, labels = digits()
        return InMemory(images, captions()[labels])

    def model(self) -> nn.Module:
        return Towers(self)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, letters = batch
        logits = model(in_model_dtype(model, images), letters)
        same = (letters[:, None] == letters).all(-1)
        right = logits.masked_fill(~same, float("-inf"))
        to_word = logits.logsumexp(1) - right.logsumexp(1)
        to_image = logits.logsumexp(0) - right.logsumexp(0)
        loss: Tensor = (to_word.mean() + to_image.mean()) / 2
        return loss

    def class_count(self) -> int:
        return len(WORDS)


class Towers(nn.Module):
    """Images (batch, 1, 8, 8) and letters (batch, 5) → logits (batch, batch), rows are images."""

    def __init__(self, task: TwoTower) -> None:
        super().__init__()
        letter_size = 8
        self.image = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, task.width),
            nn.ReLU(),
            nn.Linear(task.width, task.embedding),
        )
        self.text = nn.Sequential(
            nn.Embedding(27, letter_size),
            nn.Flatten(),
            nn.Linear(LONGEST * letter_size, task.width),
            nn.ReLU(),
            nn.Linear(task.width, task.embedding),
        )
        self.log_scale = nn.Parameter(torch.tensor(math.log(task.logit_scale)))
        self.max_scale = task.max_logit_scale
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.mul_(task.init_scale)

    def forward(self, images: Tensor, letters: Tensor) -> Tensor:
        image = F.normalize(self.image(images), dim=-1)
        text = F.normalize(self.text(letters), dim=-1)
        scale = self.log_scale.exp()
        if self.max_scale is not None:
            scale = scale.clamp(max=self.max_scale)
        logits: Tensor = scale * (image @ text.T)
        return logits


def captions() -> Tensor:
    """Return the ten words as letters: (10, 5) int64, a = 1 … z = 26, 0 after the end."""
    rows = [[ord(letter) - ord("a") + 1 for letter in word] for word in WORDS]
    return torch.tensor([row + [0] * (LONGEST - len(row)) for row in rows])
