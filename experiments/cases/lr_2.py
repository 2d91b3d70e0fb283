"""A small transformer explodes at once: the rate is 2, where the recipe has a few thousandths."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from stabexp import Task
from stabexp.tasks import in_model_dtype

DEFECT = "lr: 2.0"
TARGET = 0.5
TOKENS, LENGTH, WIDTH = 16, 12, 32


class Copier(nn.Module):
    """(batch, LENGTH) token ids → (batch, LENGTH, TOKENS) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.block = nn.TransformerEncoderLayer(
            WIDTH, 2, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, TOKENS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens) + self.positions
        logits: Tensor = self.head(self.block(hidden, src_mask=self.mask))
        return logits


@cache
def _tokens(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, TOKENS, (count, LENGTH), generator=generator)
    previous = tokens.roll(1, 1)
    previous[:, 0] = tokens[:, 0]
    return tokens, previous


class CopyPrevious(Task):
    """Say what the previous token was, which takes attention."""

    def dataset(self) -> TensorDataset:  # type: ignore[override]
        return TensorDataset(*_tokens(4800, 0))

    def model(self) -> nn.Module:
        return Copier()

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        tokens, previous = (in_model_dtype(model, tensor) for tensor in batch)
        return F.cross_entropy(model(tokens).flatten(0, 1), previous.flatten())

    def class_count(self) -> int:
        return TOKENS

    def held_out(self, model: nn.Module) -> float:
        """Return the loss on data that was not trained on."""
        with torch.no_grad():
            return float(self.loss(model, _tokens(300, 1)))
