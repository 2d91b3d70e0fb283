"""A forecast explodes in its first steps: one of its features is a raw timestamp.

Seconds since 1970 are 1.7 billion, the other features are of order one. Same kind as
unnormalised_input, in one column of six.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "x[:, 5] = seconds"
TARGET = 0.2
SAMPLES = 9600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 6)
    seconds = 1.7e9 + 3.2e7 * torch.rand(len(x))
    y = x[:, :1] - x[:, 1:2] + 0.5 * ((seconds - 1.716e9) / 1e7)[:, None]
    x[:, 5] = seconds
    if fixed:
        x[:, 5] = (x[:, 5] - x[:, 5].mean()) / x[:, 5].std()
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))
