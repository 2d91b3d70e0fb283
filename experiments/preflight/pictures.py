"""A convolutional network learns coloured digits, and a deep one learns them flat; or a mistake.

Each image has a colour of its own, so that its three channels are smooth planes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run
from stabexp.tasks.digits import digits


def coloured() -> tuple[Tensor, Tensor]:
    """Return images (1797, 3, 16, 16), standardised, and labels (1797,)."""
    images, labels = digits()
    colours = torch.rand(len(images), 3, 1, 1, generator=torch.Generator().manual_seed(3))
    large = F.interpolate(images, scale_factor=2, mode="bilinear") * colours
    return (large - large.mean()) / large.std(), labels.clone()


def network(mistake: str) -> nn.Module:
    """Return a convolutional classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def train(run: Run, *, mistake: str = "", epochs: int = 3) -> None:
    """Train on coloured digits."""
    images, labels = coloured()
    if mistake == "channels last":
        images = images.permute(0, 2, 3, 1)
    if mistake == "channels reshaped":
        images = images.permute(0, 2, 3, 1).reshape(-1, 3, 16, 16)
    model = network(mistake)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    for pixels, targets in run.steps(loader, model=model, optimizer=optimizer, epochs=epochs):
        loss = F.cross_entropy(model(pixels), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def deep(mistake: str) -> nn.Module:
    """Return a perceptron of nine layers."""
    tanh = mistake == "saturated"
    layers: list[nn.Module] = []
    for number in range(8):
        layer = nn.Linear(64 if number else 768, 64)
        if mistake == "grows":
            nn.init.normal_(layer.weight, std=0.5)
        elif mistake == "fades":
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        elif tanh:
            nn.init.normal_(layer.weight, std=1.0)
        else:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.Tanh() if tanh else nn.ReLU()]
    head = nn.Linear(64, 10)
    nn.init.normal_(head.weight, std=0.02)
    return nn.Sequential(nn.Flatten(), *layers, head)


def train_deep(run: Run, *, mistake: str = "", epochs: int = 3) -> None:
    """Train a deep perceptron on coloured digits."""
    model = deep(mistake)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    data = TensorDataset(*coloured())
    for pixels, targets in run.steps(
        data, model=model, optimizer=optimizer, epochs=epochs, batch_size=32
    ):
        loss = F.cross_entropy(model(pixels), targets)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
