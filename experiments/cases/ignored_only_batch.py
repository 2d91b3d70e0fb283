"""A fine-tuning with tiny batches runs for some steps, then everything is NaN.

Only the answer's tokens count. Now and then all prompts of a batch were cut off before their
answer, so the masked mean divides zero by zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return losses.sum() / count"
TARGET = 0.2
TOKENS, LENGTH, SAMPLES, IGNORED = 12, 8, 800, -100


def dialogues(count: int, rule: Tensor, *, complete: bool) -> tuple[Tensor, Tensor]:
    """Return tokens and labels (count, LENGTH); labels before the answer are ignored."""
    tokens = torch.randint(0, TOKENS, (count, LENGTH))
    start = torch.randint(3, LENGTH + 1, (count,))  # the last one means that the answer is cut off
    if complete:
        start = start.clamp(max=LENGTH - 1)
    return tokens, rule[tokens].masked_fill(torch.arange(LENGTH)[None] < start[:, None], IGNORED)


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def masked_mean(tokens: Tensor, labels: Tensor) -> Tensor:
        mask = (labels != IGNORED).float().flatten()
        logits = model(tokens).flatten(0, 1)
        losses = F.cross_entropy(logits, labels.clamp(min=0).flatten(), reduction="none") * mask
        count = mask.sum().clamp(min=1) if fixed else mask.sum()
        return losses.sum() / count

    rule = torch.randperm(TOKENS)
    data = TensorDataset(*dialogues(SAMPLES, rule, complete=False))
    model = nn.Sequential(
        nn.Embedding(TOKENS, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, TOKENS)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for tokens, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = masked_mean(tokens, labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(masked_mean(*dialogues(500, rule, complete=True)))
