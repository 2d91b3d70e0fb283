"""A classifier learns for a moment, then stands still far above where it should end.

The schedule divides the rate by ten every ten *passes*, but it is stepped after every batch: after
a few dozen batches the rate is practically zero.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "scheduler.step()"
TARGET = 0.4
PASSES, BATCHES = 20, 20


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    samples = BATCHES * run.settings.batch_size
    teacher = torch.randn(12, 6)
    x = torch.randn(PASSES * samples + 2000, 12)
    y = (x @ teacher).argmax(1)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=PASSES // 2, gamma=0.1)
    data = TensorDataset(x[:-2000], y[:-2000])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    steps = run.steps(loader, model=model, optimizer=optimizer, scheduler=scheduler)
    for inputs, labels in steps:
        loss = F.cross_entropy(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not fixed or (run.step + 1) % BATCHES == 0:
            scheduler.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[-2000:]), y[-2000:]))
