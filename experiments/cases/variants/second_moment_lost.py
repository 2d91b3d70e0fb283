"""At a restart the loss leaps: of Adam's two moments the checkpoint kept only the first.

The second moment is zero, but its step count goes on, so it is not corrected for being young: the
next updates are some thirty times too large. Same kind as resume_no_moments.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = 'state["exp_avg_sq"].zero_()'
TARGET = 0.5
CLASSES, SAMPLES, RESTART = 6, 8320, 160


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 16)
    y = (torch.relu(x @ torch.randn(16, 24)) @ torch.randn(24, CLASSES)).argmax(1)
    model = nn.Sequential(
        nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, CLASSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        if run.step == RESTART and not fixed:
            for state in optimizer.state.values():
                state["exp_avg_sq"].zero_()
        loss = F.cross_entropy(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
