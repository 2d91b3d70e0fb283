"""A two-class image classifier gets stuck at an accuracy that a linear model should beat.

The images are centred while they are still 8-bit numbers: dark pixels below 128 wrap around to
bright ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return (images - 128) / 128 * 4"
TARGET = 0.045
SAMPLES = 25600


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the share of wrong answers on data that was not trained on."""

    def centred(images: Tensor) -> Tensor:
        if fixed:
            images = images.float()
        return (images - 128) / 128 * 4

    y = torch.randint(0, 2, (SAMPLES + 4000,))
    pixels = 128 + (y[:, None] * 2 - 1) * 6 + 12 * torch.randn(len(y), 16)
    x = pixels.clamp(0, 255).to(torch.uint8)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for images, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(centred(images)), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((model(centred(x[SAMPLES:])).argmax(1) != y[SAMPLES:]).float().mean())
