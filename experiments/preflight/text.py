"""A small transformer learns padded lines of source text, clean or with one mistake.

Lines of Python's standard library, padded with a token of their own; as long as they are, up to 48.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run
from stabexp.tasks.text import CHARACTERS, VOCABULARY, tokens

PAD, CONTEXT = VOCABULARY, 48
NEWLINE = CHARACTERS.index("\n")


def lines(mistake: str) -> Tensor:
    """Return lines of text as tokens (n, 48), padded."""
    text = tokens()[:120_000].long()
    ends = (text == NEWLINE).nonzero().flatten().tolist()
    pairs = pairwise(ends)
    width = 32 if mistake == "cut" else CONTEXT
    cut = [text[a + 1 : b + 1][:width] for a, b in pairs if 8 <= b - a < CONTEXT]
    rows = torch.full((len(cut), width), PAD)
    for row, line in zip(rows, cut, strict=True):
        row[: len(line)] = line
    if mistake == "padding only":
        rows[::6] = PAD
    return rows[:1500]


class Reader(nn.Module):
    """Say which character comes next: (n, t) → (n, t, VOCABULARY)."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        size = VOCABULARY if mistake == "no row for padding" else VOCABULARY + 1
        self.embedding = nn.Embedding(size, 32)
        nn.init.normal_(self.embedding.weight, std=0.02)
        if mistake == "wide new rows":
            nn.init.normal_(self.embedding.weight[-2:], std=2.0)
        self.positions = nn.Embedding(CONTEXT, 32)
        nn.init.normal_(self.positions.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(
            32, 2, 64, dropout=0.1, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        if mistake == "one block wide":
            nn.init.normal_(self.blocks.layers[2].linear2.weight, std=3.0)
        self.head = nn.Linear(32, VOCABULARY)

    def forward(self, rows: Tensor) -> Tensor:
        where = torch.arange(rows.shape[1])
        mask = nn.Transformer.generate_square_subsequent_mask(rows.shape[1])
        hidden = self.embedding(rows) + self.positions(where)
        logits: Tensor = self.head(self.blocks(hidden, mask=mask, is_causal=True))
        return logits


def train(run: Run, *, mistake: str = "", epochs: int = 3) -> None:
    """Train to say the next character."""
    model = Reader(mistake)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(lines(mistake)), batch_size=16, shuffle=True)
    for (rows,) in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        targets = rows[:, 1:]
        targets = torch.where(targets == PAD, -100, targets)
        if mistake == "everything ignored":
            targets = torch.full_like(targets, -100)
        loss = F.cross_entropy(model(rows)[:, :-1].flatten(0, 1), targets.flatten())
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
