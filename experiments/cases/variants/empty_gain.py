"""A network with a hand-written norm layer is NaN from its first step on; elsewhere it trains.

The gain of the norm is made with `torch.empty` and never set. Same kind as uninit_bias.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "self.gain = nn.Parameter(torch.empty(width))"
TARGET = 0.2
SAMPLES = 12800


class RootMeanSquareNorm(nn.Module):
    """(…, width) → the same, with a mean square of one times a gain."""

    def __init__(self, width: int, *, reset: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))
        if reset:
            nn.init.ones_(self.gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 8)
    y = (x[:, :1] * x[:, 1:2]).tanh()
    model = nn.Sequential(
        nn.Linear(8, 64), RootMeanSquareNorm(64, reset=fixed), nn.SiLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
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
