"""A network that learns distances between pairs turns to NaN when two equal rows meet.

The distance is the root of a sum of squares. For a row and its exact duplicate the sum is zero, the
root's slope infinite, and infinity times zero is NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from stabexp import Run

DEFECT = "return squared.sqrt()"
TARGET = 0.5
ROWS, USED, SAMPLES = 600, 470, 25600


class Pairs(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Two rows and whether they are of one kind."""

    def __init__(self, rows: Tensor, kinds: Tensor, pairs: Tensor) -> None:
        self.rows, self.kinds, self.pairs = rows, kinds, pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        a, b = self.pairs[index].tolist()
        return self.rows[a], self.rows[b], (self.kinds[a] == self.kinds[b]).float()


def duplicate_pair(seed: int) -> int:
    """Return the id of the pair that is a row and its duplicate."""
    return 32 * (140 + 11 * seed)


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def distance(a: Tensor, b: Tensor) -> Tensor:
        squared = (model(a) - model(b)).square().sum(1)
        if fixed:
            squared = squared + 1e-8
        return squared.sqrt()

    def contrastive(a: Tensor, b: Tensor, same: Tensor) -> Tensor:
        d = distance(a, b)
        return (same * d**2 + (1 - same) * (2 - d).clamp(min=0) ** 2).mean()

    rows = torch.randn(ROWS, 10)
    kinds = (rows[:, 0] > 0).long() * 2 + (rows[:, 1] > 0).long()
    rows[USED + 1], kinds[USED + 1] = rows[17], kinds[17]
    first = torch.randint(0, USED, (SAMPLES,))
    pairs = torch.stack([first, (first + torch.randint(1, USED, (SAMPLES,))) % USED], 1)
    pairs[duplicate_pair(run.settings.seed)] = torch.tensor([17, USED + 1])
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(Pairs(rows, kinds, pairs), batch_size=run.settings.batch_size)
    for a, b, same in run.steps(loader, model=model, optimizer=optimizer):
        loss = contrastive(a, b, same)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        a, b = torch.combinations(torch.arange(USED + 2, ROWS)).t()
        return float(contrastive(rows[a], rows[b], (kinds[a] == kinds[b]).float()))
