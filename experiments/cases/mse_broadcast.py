"""A regression settles on the mean of the targets and learns nothing more.

The prediction has the shape (batch, 1) and the target (batch,). Their difference is (batch, batch):
every prediction is compared with every target.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "loss = (predictions - targets).square().mean()"
TARGET = 0.1
SAMPLES = 9600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    teacher = torch.randn(10) / 3
    x = torch.randn(SAMPLES + 2000, 10)
    y = x @ teacher + 2
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        predictions = model(inputs)
        if fixed:
            predictions = predictions.squeeze(1)
        loss = (predictions - targets).square().mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]).squeeze(1), y[SAMPLES:]))
