"""A residual network with dropout and activation checkpointing ends at too high a loss.

Checkpointing runs each block a second time in the backward pass. Without restoring the random
state the second run draws another dropout mask, so the gradient belongs to another function than
the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "x = x + checkpoint("
TARGET = 0.12
WIDTH, BLOCKS, SAMPLES = 64, 6, 25600


class Residual(nn.Module):
    """(batch, 8) → (batch, 1), with blocks whose activations are not kept."""

    def __init__(self, *, keep_random_state: bool) -> None:
        super().__init__()
        self.keep_random_state = keep_random_state
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH),
                nn.ReLU(),
                nn.Dropout(0.3),
                nn.Linear(WIDTH, WIDTH),
                nn.Dropout(0.3),
            )
            for _ in range(BLOCKS)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.first(inputs)
        for block in self.blocks:
            if self.training:
                x = x + checkpoint(
                    block, x, use_reentrant=False, preserve_rng_state=self.keep_random_state
                )
            else:
                x = x + block(x)
        result: Tensor = self.last(x)
        return result


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 8)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    model = Residual(keep_random_state=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))
