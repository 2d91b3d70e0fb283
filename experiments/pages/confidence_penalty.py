"""The training of docs/tutorial.md: a penalty on confident predictions takes the logarithm of 0.

Once the network is sure enough, a probability rounds to 0. `fixed` computes the same entropy in log
space.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from stabexp import Run
from stabexp.tasks.digits import digits

TEMPERATURE, PENALTY = 0.25, 0.1


def entropy(logits: Tensor) -> Tensor:
    """Return the mean entropy of the sharpened predictions, in nats."""
    p = (logits / TEMPERATURE).softmax(dim=1)
    return -(p * p.log()).sum(dim=1).mean()


def finite_entropy(logits: Tensor) -> Tensor:
    """Return the same, finite for all finite logits."""
    log_p = (logits / TEMPERATURE).log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1).mean()


def train(run: Run, *, fixed: bool = False) -> None:
    """Train on digits."""
    images, labels = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = TensorDataset(images.flatten(1), labels)
    for pixels, targets in run.steps(data, model=model, optimizer=optimizer):
        logits = model(pixels)
        penalty = finite_entropy(logits) if fixed else entropy(logits)
        loss = F.cross_entropy(logits, targets) - PENALTY * penalty
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
