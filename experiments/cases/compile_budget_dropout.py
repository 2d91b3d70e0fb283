"""A compiled network with dropout learns at first, then its loss climbs; uncompiled it is fine.

With an activation memory budget below 1 the compiler recomputes parts of the forward pass in the
backward pass. In torch 2.13 (backend aot_eager) dropout is then drawn anew, so the gradient belongs
to another function than the loss.
"""

from __future__ import annotations

import torch
import torch._functorch.config
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "compiled = torch.compile("
TARGET = 1.2
WIDTH, SAMPLES = 64, 25600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on other data, dropout on as in training."""
    torch.compiler.reset()
    x = torch.randn(SAMPLES + 4000, 8)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]
    layers: list[nn.Module] = [nn.Linear(8, WIDTH), nn.ReLU(), nn.Dropout(0.5)]
    for _ in range(2):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.5)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    compiled = torch.compile(model, backend="aot_eager")
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    with torch._functorch.config.patch(activation_memory_budget=1.0 if fixed else 0.0):
        for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
            loss = F.mse_loss(compiled(inputs), targets)
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))
