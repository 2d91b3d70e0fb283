"""A classifier with float16 weights turns to NaN in the first update.

Adam divides by the root of its second moment plus eps. An eps of 1e-8 is zero in float16, and so is
the square of a small gradient, so the update divides by zero.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "optimizer = torch.optim.Adam("
TARGET = 0.45


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    teacher = torch.randn(16, 4)
    x = torch.randn(9600 + 2000, 16)
    y = (x @ teacher).argmax(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).half()
    eps = 1e-4 if fixed else 1e-8
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, eps=eps)
    loader = DataLoader(TensorDataset(x[:9600], y[:9600]), batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs.half()).float(), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[9600:].half()).float(), y[9600:]))
