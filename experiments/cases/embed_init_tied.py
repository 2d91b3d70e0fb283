"""A small language model starts at a loss many times that of guessing, and comes down slowly.

The token embedding keeps torch's N(0, 1) and is also the output matrix, so the logits are huge. A
standard deviation of 0.02 starts at ln(64).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "self.embedding = nn.Embedding(TOKENS, WIDTH)"
TARGET = 0.3
TOKENS, LENGTH, WIDTH, SAMPLES = 64, 12, 128, 1120


class LanguageModel(nn.Module):
    """(batch, length) token ids → (batch, length, TOKENS) logits, output tied to the input."""

    def __init__(self, *, small_embedding: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        if small_embedding:
            nn.init.normal_(self.embedding.weight, std=0.02)
        self.block = nn.TransformerEncoderLayer(
            WIDTH, 4, 128, dropout=0.0, batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.block(self.embedding(tokens) + self.positions, src_mask=self.mask)
        logits: Tensor = self.norm(hidden) @ self.embedding.weight.t()
        return logits


def sentences(count: int, successor: Tensor) -> tuple[Tensor, Tensor]:
    """Return inputs and targets (count, LENGTH): every token has one successor."""
    tokens = [torch.randint(0, TOKENS, (count,))]
    for _ in range(LENGTH):
        tokens.append(successor[tokens[-1]])
    text = torch.stack(tokens, 1)
    return text[:, :-1], text[:, 1:]


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    successor = torch.randperm(TOKENS)
    data = TensorDataset(*sentences(SAMPLES, successor))
    model = LanguageModel(small_embedding=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        inputs, targets = sentences(300, successor)
        return float(F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()))
