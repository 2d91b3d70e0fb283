"""A small regression explodes in its first steps.

The features are fed in as measured, in the ten thousands. Standardising them cures; that is a
change of the data, not of the rate.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "x = centre + spread * z"
TARGET = 0.1
FEATURES, SAMPLES = 8, 12800


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    centre, spread = 1e4 * torch.rand(FEATURES), 2e3 * (0.5 + torch.rand(FEATURES))
    teacher = torch.randn(FEATURES, 1) / 3
    z = torch.randn(SAMPLES + 2000, FEATURES)
    x = centre + spread * z
    y = z @ teacher
    if fixed:
        x = (x - centre) / spread
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
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
