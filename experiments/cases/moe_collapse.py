"""A mixture of experts ends at a plateau, because some experts never see a sample.

The router sends each sample to its first choice only, and starts with a preference. Experts that
are chosen learn and are chosen more; nothing balances the load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "(error + balance_weight * balance).backward()"
TARGET = 0.075
EXPERTS, WIDTH, SAMPLES = 8, 14, 25600


class Mixture(nn.Module):
    """(batch, WIDTH) → outputs (batch, 2) and how unevenly the experts are used, 1 when evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 2) for _ in range(EXPERTS))
        with torch.no_grad():
            self.router.weight.mul_(0.1)
            self.router.weight[0] += 8 * 4 * torch.eye(WIDTH)[:EXPERTS].mean(0)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        shares = self.router(x).softmax(1)
        chosen, rows = shares.argmax(1), torch.arange(len(x))
        every = torch.stack([expert(x) for expert in self.experts], 1)
        outputs = every[rows, chosen] * shares[rows, chosen][:, None]
        used = F.one_hot(chosen, EXPERTS).float().mean(0)
        return outputs, EXPERTS * (used * shares.mean(0)).sum()


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the share of the variance of other data that is left unexplained."""
    maps = torch.randn(EXPERTS, WIDTH, 2)
    content = (torch.arange(WIDTH) >= EXPERTS).float()  # the first inputs say which map applies
    kind = torch.randint(0, EXPERTS, (SAMPLES + 3000,))
    z = torch.randn(len(kind), WIDTH) * content
    x = 4 * torch.eye(WIDTH)[:EXPERTS][kind] + z
    y = torch.einsum("nd,ndo->no", z, maps[kind])
    model = Mixture()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    balance_weight = 1.0 if fixed else 0.0
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        outputs, balance = model(inputs)
        error = F.mse_loss(outputs, targets)
        run.log(error)
        optimizer.zero_grad()
        (error + balance_weight * balance).backward()
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:])[0], y[SAMPLES:]) / y[SAMPLES:].var())
