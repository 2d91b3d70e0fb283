"""A regression on counts turns to NaN when its first prediction drops below zero.

Roots are compared where a prediction is positive, plain values elsewhere. The root of the negative
ones is computed all the same, and `torch.where` multiplies its NaN slope by zero. Same kind as
where_nan, with another operation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "root = known.sqrt()"
TARGET = 1.5
SAMPLES = 9600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def criterion(inputs: Tensor, counts: Tensor) -> Tensor:
        predictions = model(inputs).squeeze(1)
        known = torch.where(predictions > 0, predictions, 1.0) if fixed else predictions
        root = known.sqrt()
        stable = 4 * (root - counts.sqrt()).square()
        return torch.where(predictions > 0, stable, (predictions - counts).square()).mean()

    x = torch.rand(SAMPLES + 2000, 4)
    y = torch.poisson(4 * (2 * x[:, 0] - 1).clamp(min=0))  # none on one side
    last = nn.Linear(32, 1)
    nn.init.constant_(last.bias, 1.5)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, counts in run.steps(loader, model=model, optimizer=optimizer):
        loss = criterion(inputs, counts)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(criterion(x[SAMPLES:], y[SAMPLES:]))
