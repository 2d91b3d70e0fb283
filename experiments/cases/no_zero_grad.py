"""A regression learns, then its loss swings wider and wider.

The gradients are cleared once before the loop instead of in every step, so each update uses the sum
of all gradients so far. A lower rate and clipping both seem to cure.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "optimizer.zero_grad()"
TARGET = 0.2
SAMPLES = 9600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    teacher = torch.randn(10, 3) / 2
    x = torch.randn(SAMPLES + 2000, 10)
    y = x @ teacher
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss)
        if fixed:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))
