"""A classifier with several allowed answers turns to NaN at one sample that allows none.

The loss is the logarithm of the allowed answers' total probability, which for that sample is zero.
Same kind as ctc_too_long: a target that nothing can reach.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return -reached.log().mean()"
TARGET = 0.3
CLASSES, SAMPLES = 8, 9600


def unanswerable(seed: int) -> int:
    """Return the id of the sample without an allowed answer."""
    return 32 * (75 + 12 * seed) + 9


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def criterion(x: Tensor, allowed: Tensor) -> Tensor:
        reached = (model(x).softmax(1) * allowed).sum(1)
        if fixed:
            reached = reached[allowed.any(1)]
        return -reached.log().mean()

    x = torch.randn(SAMPLES + 2000, 10)
    scores = x @ torch.randn(10, CLASSES)
    allowed = scores >= scores.topk(2).values[:, 1:]
    allowed[unanswerable(run.settings.seed)] = False
    model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = TensorDataset(x[:SAMPLES], allowed[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, answers in run.steps(loader, model=model, optimizer=optimizer):
        loss = criterion(inputs, answers)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(criterion(x[SAMPLES:], allowed[SAMPLES:]))
