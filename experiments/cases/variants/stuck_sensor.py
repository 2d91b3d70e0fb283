"""A classifier that pools motion over time turns to NaN at one recording that stands still.

The motion is the root of a mean square, which for a stuck sensor is exactly zero, where the slope
of the root is infinite. Same kind as sqrt_zero_pair, inside the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "motion = energy.sqrt()"
TARGET = 0.4
LENGTH, SAMPLES = 12, 4800


def stuck(seed: int) -> int:
    """Return the id of the recording that stands still."""
    return 16 * (80 + 9 * seed) + 7


class Pooled(nn.Module):
    """(batch, LENGTH, 3) → logits (batch, 2), from how much moves."""

    def __init__(self, *, safe: bool) -> None:
        super().__init__()
        self.safe = safe
        self.first, self.last = nn.Linear(3, 24), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        energy = (hidden - hidden[:, :1]).square().mean(1)
        if self.safe:
            energy = energy + 1e-6
        motion = energy.sqrt()
        logits: Tensor = self.last(motion)
        return logits


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    y = torch.randint(0, 2, (SAMPLES + 2000,))
    x = torch.randn(len(y), LENGTH, 3) * (0.5 + y[:, None, None])
    x[stuck(run.settings.seed)] = 0.25
    model = Pooled(safe=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
