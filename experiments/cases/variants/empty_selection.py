"""A detector's box regression turns to NaN at the first batch without an object.

Each sample weighs its share of the objects in the batch, and a batch without any divides zero by
zero. Same kind as ignored_only_batch, in the weights instead of the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "shares = present.float() / objects"
TARGET = 0.2
SAMPLES = 1600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def box_loss(x: Tensor, boxes: Tensor, present: Tensor) -> Tensor:
        objects = present.sum().clamp(min=1) if fixed else present.sum()
        shares = present.float() / objects
        return ((model(x) - boxes).abs().mean(1) * shares).sum()

    x = torch.randn(SAMPLES + 1000, 6)
    boxes = torch.stack([x[:, 0] + x[:, 1], x[:, 2], x[:, 3] - x[:, 4], x[:, 5]], 1)
    present = torch.rand(len(x)) < 0.6
    model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    data = TensorDataset(x[:SAMPLES], boxes[:SAMPLES], present[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets, there in run.steps(loader, model=model, optimizer=optimizer):
        loss = box_loss(inputs, targets, there)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(box_loss(x[SAMPLES:], boxes[SAMPLES:], present[SAMPLES:]))
