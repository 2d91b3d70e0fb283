"""Training looks perfect, evaluation is as bad as guessing.

The running statistics of the batch norm are kept in float16, as after `module.half()`. The layer's
variance is beyond 65,504, so the running variance is infinite. Training uses the batch's own
statistics and never notices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "self.norm.running_var.data = self.norm.running_var.half().float()"
TARGET = 0.6
SAMPLES = 19200


class Classifier(nn.Module):
    """(batch, 10) → logits (batch, 4)."""

    def __init__(self, *, half_statistics: bool) -> None:
        super().__init__()
        self.half_statistics = half_statistics
        self.first, self.norm, self.last = nn.Linear(10, 48), nn.BatchNorm1d(48), nn.Linear(48, 4)
        with torch.no_grad():
            self.first.weight.mul_(400)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if self.half_statistics:
            assert self.norm.running_mean is not None
            assert self.norm.running_var is not None
            self.norm.running_mean.data = self.norm.running_mean.half().float()
            self.norm.running_var.data = self.norm.running_var.half().float()
        logits: Tensor = self.last(torch.relu(self.norm(hidden)))
        return logits


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss of the evaluated model on data that was not trained on."""
    teacher = torch.randn(10, 4)
    x = torch.randn(SAMPLES + 2000, 10) * 3
    y = (x @ teacher).argmax(1)
    model = Classifier(half_statistics=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
