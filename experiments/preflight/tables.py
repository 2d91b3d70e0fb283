"""A perceptron learns a smooth function of a table's columns, clean or with one mistake."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run


def table(mistake: str) -> tuple[Tensor, Tensor]:
    """Return rows (1000, 8) of unit scale and targets (1000,)."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(1000, 8, generator=generator)
    targets = (rows[:, :3].sin().sum(1) + 0.1 * torch.randn(1000, generator=generator)) / 2
    if mistake == "one column in another unit":
        rows[:, 5] *= 5000.0
    if mistake == "stuck sensor":
        rows[:, 4] = 3.25
    return rows, targets


def train(run: Run, *, mistake: str = "", epochs: int = 5, binary: bool = False) -> None:
    """Train a regression, or a yes-or-no question."""
    rows, targets = table(mistake)
    if binary:
        targets = (targets > 0).float()
        if mistake == "labels of minus one":
            targets = 2 * targets - 1
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(rows, targets), batch_size=25, shuffle=True)
    for inputs, wanted in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        found = model(inputs)
        if mistake != "column against row":
            found = found.squeeze(-1)
        if binary:
            loss = F.binary_cross_entropy_with_logits(found, wanted)
        else:
            loss = (found - wanted).square().mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
