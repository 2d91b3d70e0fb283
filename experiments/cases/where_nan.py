"""A regression with a logarithmic part turns to NaN when its first prediction drops below zero.

`torch.where` picks the plain square where a prediction is negative. But the logarithm of the other
branch is computed all the same, and its zero gradient times the infinite slope is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "log_ratio = safe.log() - torch.where(targets > 0, targets, 1.0).log()"
TARGET = 0.5
SAMPLES = 19200


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def criterion(inputs: Tensor, targets: Tensor) -> Tensor:
        predictions = model(inputs).squeeze(1)
        both = (predictions > 0) & (targets > 0)
        safe = torch.where(both, predictions, 1.0) if fixed else predictions
        log_ratio = safe.log() - torch.where(targets > 0, targets, 1.0).log()
        square = (predictions - targets).square()
        return torch.where(both, 0.1 * log_ratio.square() + square, square).mean()

    x = torch.randn(SAMPLES + 2000, 6)
    y = (x[:, 0] + 0.7).clamp(min=0) * 2
    last = nn.Linear(64, 1)
    nn.init.constant_(last.bias, 2.5)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = criterion(inputs, targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(criterion(x[SAMPLES:], y[SAMPLES:]))
