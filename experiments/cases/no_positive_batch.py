"""A multi-label classifier with tiny batches turns to NaN within a few steps.

The loss weighs the classes by entries / positives of the batch. A batch of two samples may hold no
positive entry at all, and the weight is a number divided by zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "ratio = labels.numel() / positives"
TARGET = 0.42
SAMPLES = 1000


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def balanced(inputs: Tensor, labels: Tensor) -> Tensor:
        p = model(inputs).sigmoid().clamp(1e-6, 1 - 1e-6)
        positives = labels.sum().clamp(min=1) if fixed else labels.sum()
        ratio = labels.numel() / positives
        negative, positive = 0.5 * ratio / (ratio - 1), 0.5 * ratio
        terms = positive * labels * p.log() + negative * (1 - labels) * (1 - p).log()
        return -terms.mean()

    teacher = torch.randn(10, 8)
    x = torch.randn(SAMPLES + 3000, 10)
    y = (x @ teacher > 3.2).float()
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = balanced(inputs, labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(balanced(x[SAMPLES:], y[SAMPLES:]))
