"""After a restart the training loss falls beautifully, and the model gets worse on everything else.

The position restored from the data loader's checkpoint becomes the start of every later pass: only
the last twentieth of the data is seen, again and again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from stabexp import Run

DEFECT = "place = self.restored + (place - self.restored) % (len(self.x) - self.restored)"
TARGET = 1.03
SAMPLES, RESTORED = 12800, 12160


class Resumed(Dataset[tuple[Tensor, Tensor]]):
    """The stream of samples of a training that was interrupted in its first pass."""

    def __init__(self, x: Tensor, y: Tensor, *, restored: int, length: int, whole: bool) -> None:
        """`restored` is how many samples had been seen at the interruption."""
        self.x, self.y, self.restored, self.length, self.whole = x, y, restored, length, whole
        self.order = torch.randperm(len(x))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        if self.whole:
            place = place % len(self.x)
        elif place >= self.restored:
            place = self.restored + (place - self.restored) % (len(self.x) - self.restored)
        row = self.order[place]
        return self.x[row], self.y[row]


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on other data as a multiple of what it was at the restart."""

    def held_out() -> float:
        with torch.no_grad():
            return float(F.mse_loss(model(x[SAMPLES:]), y[SAMPLES:]))

    teacher = torch.randn(20, 1) / 4
    x = torch.randn(SAMPLES + 2000, 20)
    y = x @ teacher + torch.randn(len(x), 1)
    model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    size = run.settings.batch_size
    data = Resumed(x[:SAMPLES], y[:SAMPLES], restored=RESTORED, length=4 * SAMPLES, whole=fixed)
    before = float("nan")
    loader = DataLoader(data, batch_size=size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        if run.position <= RESTORED < run.position + size:
            before = held_out()
        loss = F.mse_loss(model(inputs), targets)
        run.log(loss, **({} if run.step % 20 else {"val_loss": held_out()}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return held_out() / before
