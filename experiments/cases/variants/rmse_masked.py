"""A forecast trained on the root of the mean squared error turns to NaN at one quiet batch.

All sensors of that batch were off, so the masked error is exactly zero, and the slope of the root
there is infinite. Same kind as sqrt_zero_pair, but at the very end of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return error.pow(0.5)"
TARGET = 0.25
SENSORS, SAMPLES = 6, 1600


def quiet_batch(seed: int) -> range:
    """Return the ids of the four samples of the step at which every sensor was off."""
    start = 4 * (70 + 13 * seed)
    return range(start, start + 4)


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def rmse(x: Tensor, y: Tensor, on: Tensor) -> Tensor:
        error = ((model(x) - y) * on).square().mean()
        if fixed:
            error = error + 1e-12
        return error.pow(0.5)

    mixture = torch.randn(SENSORS, SENSORS) / 2
    x = torch.randn(SAMPLES + 1000, SENSORS)
    y = torch.tanh(x @ mixture)
    on = (torch.rand(len(x), SENSORS) < 0.8).float()
    on[list(quiet_batch(run.settings.seed))] = 0
    model = nn.Sequential(nn.Linear(SENSORS, 40), nn.SiLU(), nn.Linear(40, SENSORS))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES], on[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets, active in run.steps(loader, model=model, optimizer=optimizer):
        loss = rmse(inputs, targets, active)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(rmse(x[SAMPLES:], y[SAMPLES:], on[SAMPLES:]))
