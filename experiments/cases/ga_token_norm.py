"""A language model trained with accumulated micro-batches answers long texts worse than it should.

Each micro-batch is divided by its own number of tokens, and the means are averaged. A text of one
token then weighs as much as a text of forty. The sum over the step has to be divided by the tokens
of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "(total / count / accumulate).backward()"
TARGET = 0.27
TOKENS, LENGTH, SAMPLES, IGNORED = 10, 40, 2400, -100


def texts(count: int, rules: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return tokens and labels (count, LENGTH): long texts follow one rule, short ones another."""
    tokens = torch.randint(0, TOKENS, (count, LENGTH))
    short = (torch.rand(count) < 0.6)[:, None]
    labels = torch.where(short, rules[1][tokens], rules[0][tokens])
    return tokens, labels.masked_fill((torch.arange(LENGTH)[None] > 0) & short, IGNORED)


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss per token on data that was not trained on."""

    def sums(tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(tokens).flatten(0, 1)
        total = F.cross_entropy(logits, labels.flatten(), reduction="sum", ignore_index=IGNORED)
        return total, (labels != IGNORED).sum()

    rules = torch.randperm(TOKENS), torch.randperm(TOKENS)
    data = TensorDataset(*texts(SAMPLES, rules))
    model = nn.Sequential(
        nn.Embedding(TOKENS, 24), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, TOKENS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    accumulate = run.settings.accumulate
    tokens_seen = torch.tensor(0)
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    steps = run.steps(loader, model=model, optimizer=optimizer)
    for index, (tokens, labels) in enumerate(steps, start=1):
        total, count = sums(tokens, labels)
        run.log(total / count)
        if fixed:
            total.backward()
            tokens_seen = tokens_seen + count
        else:
            (total / count / accumulate).backward()
        if index % accumulate == 0:
            if fixed:
                for p in model.parameters():
                    assert p.grad is not None
                    p.grad.div_(tokens_seen)
                tokens_seen = torch.tensor(0)
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        total, count = sums(*texts(800, rules))
        return float(total / count)
