"""A classifier of a hundred classes does not get going, whatever the learning rate.

The model's output goes through softmax and then into the cross entropy, which applies softmax
itself. The loss has a floor near that of guessing and the gradients are tiny.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "loss = F.cross_entropy(outputs, labels)"
TARGET = 1.0
CLASSES, SAMPLES = 100, 19200


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    centres = torch.randn(CLASSES, 24)
    y = torch.randint(0, CLASSES, (SAMPLES + 2000,))
    x = centres[y] + 0.5 * torch.randn(len(y), 24)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        outputs = model(inputs)
        if not fixed:
            outputs = outputs.softmax(1)
        loss = F.cross_entropy(outputs, labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
