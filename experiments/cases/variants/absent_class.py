"""A classifier with balanced class weights turns to NaN at the first batch that lacks a class.

The weight of a class is the number of samples divided by how many of it are in the batch, and the
weights are normalised: one infinite weight makes all others zero, and the weighted mean 0/0. Same
kind as no_positive_batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "weights = len(labels) / counts"
TARGET = 0.8
CLASSES, SAMPLES = 4, 4800


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def balanced(logits: Tensor, labels: Tensor) -> Tensor:
        counts = torch.bincount(labels, minlength=CLASSES)
        if fixed:
            counts = counts.clamp(min=1)
        weights = len(labels) / counts
        weights = weights / weights.sum()
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (losses * weights[labels]).sum() / weights[labels].sum()

    y = torch.multinomial(torch.tensor([0.35, 0.3, 0.2, 0.15]), SAMPLES + 2000, replacement=True)
    x = torch.randn(CLASSES, 10)[y] + 0.7 * torch.randn(len(y), 10)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = balanced(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(balanced(model(x[SAMPLES:]), y[SAMPLES:]))
