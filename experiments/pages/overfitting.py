"""Two hundred images of digits, some labelled wrongly, are learned by heart.

The loss on other images falls while the network learns digits, and rises while it learns the wrong
labels. `fixed` trains on all images but those held out, with their own labels.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from stabexp import Run
from stabexp.tasks.digits import digits

HELD_OUT, FEW = 400, 200
WRONG = 5
"""One label in so many is wrong."""
EVERY = 10
"""Steps between two looks at the held-out images."""


def train(run: Run, *, fixed: bool = False) -> None:
    """Train a network that is far too large for so few images."""
    images, labels = digits()
    images = images.flatten(1)
    held_out = slice(len(images) - HELD_OUT, None)
    chosen = slice(0, len(images) - HELD_OUT if fixed else FEW)
    targets = labels[chosen].clone()
    if not fixed:
        targets[::WRONG] = (targets[::WRONG] + 3) % 10
    data = TensorDataset(images[chosen], targets)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for pixels, wanted in run.steps(data, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(pixels), wanted)
        metrics = {}
        if run.step % EVERY == 0:
            with torch.no_grad():
                metrics["held_out_loss"] = F.cross_entropy(
                    model(images[held_out]), labels[held_out]
                )
        run.log(loss, **metrics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
