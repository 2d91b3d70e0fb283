"""Right after a restart the loss leaps several-fold, and takes long to come back.

The restart puts the weights back, but not Adam's moments. The first updates are full-sized jumps in
the direction of the sign, at the full learning rate. Warmup or a lower rate hides it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "optimizer.load_state_dict(blank)"
TARGET = 1.9
INPUTS, WIDTH, SAMPLES, RESTART, LR = 24, 256, 24320, 300, 4e-3


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the worst loss after the restart as a multiple of the one before it."""

    def held_out() -> float:
        with torch.no_grad():
            return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))

    x = torch.randn(SAMPLES + 1000, INPUTS)
    y = torch.sin(2 * x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3] + 0.1 * torch.randn(len(x), 1)
    layers: list[nn.Module] = [nn.Linear(INPUTS, WIDTH), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 100))
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    before, worst = float("nan"), 0.0
    steps = run.steps(loader, model=model, optimizer=optimizer, scheduler=scheduler)
    for inputs, targets in steps:
        if run.step == RESTART:
            before = held_out()
            if not fixed:  # the checkpoint file holds the weights only
                blank = torch.optim.Adam(model.parameters(), lr=LR).state_dict()
                blank["param_groups"] = optimizer.state_dict()["param_groups"]
                optimizer.load_state_dict(blank)
        elif run.step > RESTART:
            worst = max(worst, held_out())
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    return max(worst, held_out()) / before
