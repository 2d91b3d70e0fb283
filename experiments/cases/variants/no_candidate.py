"""A ranking model turns to NaN at the one list in which no candidate is left.

All its scores are masked with minus infinity, so their log-softmax is a number minus infinity minus
itself. Same kind as attn_all_masked, without attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "log_p = scores.log_softmax(1)"
TARGET = 0.5
CANDIDATES, SAMPLES = 7, 4800


def empty_list(seed: int) -> int:
    """Return the id of the list without candidates."""
    return 16 * (60 + 7 * seed) + 5


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""

    def criterion(x: Tensor, mask: Tensor, best: Tensor) -> Tensor:
        if fixed:
            mask = mask | ~mask.any(1, keepdim=True)
        scores = model(x).squeeze(2) + mask.float().log()  # minus infinity where masked
        log_p = scores.log_softmax(1)
        return -log_p.gather(1, best[:, None]).mean()

    x = torch.randn(SAMPLES + 2000, CANDIDATES, 5)
    mask = torch.rand(len(x), CANDIDATES) < 0.7
    mask[:, 2] = True
    best = (x[..., 0] - x[..., 1]).masked_fill(~mask, float("-inf")).argmax(1)
    mask[empty_list(run.settings.seed)] = False
    model = nn.Sequential(nn.Linear(5, 24), nn.GELU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    data = TensorDataset(x[:SAMPLES], mask[:SAMPLES], best[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, kept, chosen in run.steps(loader, model=model, optimizer=optimizer):
        loss = criterion(inputs, kept, chosen)
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float(criterion(x[SAMPLES:], mask[SAMPLES:], best[SAMPLES:]))
