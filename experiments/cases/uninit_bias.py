"""A mixture of linear models is NaN from the first step on; on other machines it trains.

The router's bias is made with `torch.empty` and its initialisation forgets it, so it holds whatever
the memory held. With deterministic algorithms that is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "self.bias = nn.Parameter(torch.empty(experts))"
TARGET = 0.3
EXPERTS, CLASSES, SAMPLES = 4, 3, 25600


class Router(nn.Module):
    """(batch, inputs) → (batch, experts)."""

    def __init__(self, inputs: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, inputs))
        self.bias = nn.Parameter(torch.empty(experts))

    def reset(self, *, bias_too: bool) -> None:
        """Draw the initial weights."""
        nn.init.trunc_normal_(self.weight, std=0.1)
        if bias_too:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Mixture(nn.Module):
    """(batch, 10) → logits (batch, CLASSES)."""

    def __init__(self, *, bias_too: bool) -> None:
        super().__init__()
        self.router = Router(10, EXPERTS)
        self.router.reset(bias_too=bias_too)
        self.experts = nn.Linear(10, EXPERTS * CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)[:, :, None]
        logits: Tensor = (shares * self.experts(x).view(-1, EXPERTS, CLASSES)).sum(1)
        return logits


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    teacher = torch.randn(10, CLASSES)
    x = torch.randn(SAMPLES + 1000, 10)
    y = (x @ teacher).argmax(1)
    model = Mixture(bias_too=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, labels in run.steps(loader, model=model, optimizer=optimizer):
        loss = F.cross_entropy(model(inputs), labels)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
