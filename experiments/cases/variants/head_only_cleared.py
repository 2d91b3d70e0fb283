"""A fine-tuning learns, then its loss grows: only the head's gradients are cleared.

`zero_grad` of the head alone was written when the body was frozen. Since it is trained too, its
gradients pile up from step to step. Same kind as no_zero_grad, for a part of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "model.head.zero_grad()"
TARGET = 0.2
SAMPLES = 9600


class Tuned(nn.Module):
    """(batch, 8) → (batch, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 40), nn.ReLU())
        self.head = nn.Linear(40, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.body(x))
        return result


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 8)
    y = torch.sin(x @ torch.randn(8, 2) / 2)
    model = Tuned()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss)
        if fixed:
            optimizer.zero_grad()
        else:
            model.head.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))
