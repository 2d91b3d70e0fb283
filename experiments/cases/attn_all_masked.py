"""An attention model reads padded token lists; one list is empty, and all weights turn to NaN.

The mask hides every key of the empty list, so its scores are all minus infinity and their softmax
is 0/0. One sample poisons the gradient of the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "attention = scores.softmax(-1)"
TARGET = 2.2
LENGTH, WIDTH, TOKENS, SAMPLES = 10, 32, 20, 4800


class Reader(nn.Module):
    """Padded token lists (batch, length) → logits of the largest token (batch, TOKENS)."""

    def __init__(self, *, keep_one_key: bool) -> None:
        super().__init__()
        self.keep_one_key = keep_one_key
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor, padding: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        scores = self.query(hidden[:, :1]) @ self.key(hidden).transpose(1, 2) / WIDTH**0.5
        if self.keep_one_key:
            padding = padding & ~padding.all(1, keepdim=True)
        scores = scores.masked_fill(padding[:, None], float("-inf"))
        attention = scores.softmax(-1)
        logits: Tensor = self.head((attention @ self.value(hidden)).squeeze(1))
        return logits


def empty_list(seed: int) -> int:
    """Return the id of the sample without tokens."""
    return 16 * (140 + 11 * seed) + 3


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    lengths = torch.randint(1, LENGTH + 1, (SAMPLES + 2000,))
    lengths[empty_list(run.settings.seed)] = 0
    padding = torch.arange(LENGTH)[None] >= lengths[:, None]
    tokens = torch.randint(1, TOKENS, (SAMPLES + 2000, LENGTH)).masked_fill(padding, 0)
    data = TensorDataset(tokens, padding, tokens.max(1).values)
    model = Reader(keep_one_key=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(
        torch.utils.data.Subset(data, range(SAMPLES)), batch_size=run.settings.batch_size
    )
    for inputs, hidden, largest in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs, hidden), largest)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        inputs, hidden, largest = data[SAMPLES:]
        return float(F.cross_entropy(model(inputs, hidden), largest))
