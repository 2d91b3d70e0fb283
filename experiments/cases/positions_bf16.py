"""A model that has to know exact positions stops improving, though its table is long enough.

The table of sines is computed from positions in bfloat16, which beyond 256 cannot tell neighbours
apart.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "angles = positions[:, None] * frequencies[None]"
TARGET = 0.3
LENGTH, WIDTH, SAMPLES = 1024, 64, 25600


def position_table(kind: torch.dtype) -> Tensor:
    """Return cosines and sines of every position, (LENGTH, WIDTH)."""
    positions = torch.arange(LENGTH).to(kind)
    frequencies = (math.pi / 1024 ** (torch.arange(0, WIDTH, 2) / WIDTH)).to(kind)
    angles = positions[:, None] * frequencies[None]
    return torch.cat([angles.float().cos(), angles.float().sin()], 1)


class Reader(nn.Module):
    """(batch,) positions → logits (batch, 4)."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("table", position_table(kind))
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, positions: Tensor) -> Tensor:
        logits: Tensor = self.layers(self.table[positions])  # type: ignore[index]
        return logits


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    positions = torch.randint(0, LENGTH, (SAMPLES + 4000,))
    labels = positions % 2 + 2 * (positions // 2 % 2)  # the phase of a record of four
    model = Reader(torch.float32 if fixed else torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(positions[:SAMPLES], labels[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, phases in run.steps(loader, model=model, optimizer=optimizer):
        with run.autocast():
            logits = model(inputs)
        loss = F.cross_entropy(logits.float(), phases)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(positions[SAMPLES:]), labels[SAMPLES:]))
