"""A low-rank adapter blows up within a few steps, at a rate that the same recipe trains with.

The adapter's output is multiplied by alpha instead of alpha / r, so its updates are 16 times as
strong as the recipe means.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return base + self.scale * update"
TARGET = 0.08
RANK, ALPHA, SAMPLES = 16, 32.0, 9600


class Adapted(nn.Module):
    """A frozen linear layer plus a trainable low-rank update: (…, inputs) → (…, outputs)."""

    def __init__(self, weight: Tensor, *, scale: float) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.scale = scale
        self.register_buffer("weight", weight)
        self.down = nn.Parameter(torch.randn(RANK, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, RANK))

    def forward(self, x: Tensor) -> Tensor:
        base = x @ self.weight.t()  # type: ignore[operator]
        update = x @ self.down.t() @ self.up.t()
        return base + self.scale * update


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    first, last = torch.randn(64, 16) / 4, torch.randn(8, 64) / 8
    shift = torch.randn(64, 2) @ torch.randn(2, 16) / 4  # what fine-tuning has to find
    x = torch.randn(SAMPLES + 2000, 16)
    y = torch.relu(x @ (first + shift).t()) @ last.t()
    scale = ALPHA / RANK if fixed else ALPHA
    model = nn.Sequential(Adapted(first, scale=scale), nn.ReLU(), Adapted(last, scale=scale))
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-2, momentum=0.9)
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
