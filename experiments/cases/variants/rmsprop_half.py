"""A regression with float16 weights and RMSprop turns to NaN in its first update.

The mean square of a small gradient and the eps of 1e-8 are both zero in float16. Same kind as
adam_eps_fp16.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "optimizer = torch.optim.RMSprop("
TARGET = 0.1
SAMPLES = 9600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.rand(SAMPLES + 2000, 12)
    y = torch.sin(3 * x[:, :1]) * x[:, 1:2]
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1)).half()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=1e-3 if fixed else 1e-8)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs.half()).float(), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:].half()).float(), y[SAMPLES:]))
