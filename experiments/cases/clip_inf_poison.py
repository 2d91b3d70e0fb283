"""A mixed-precision training clips gradients by hand, and one bad record makes every weight NaN.

The record has a unit error, so its gradient overflows in float16. The clipping then multiplies
the infinite gradient by max_norm / inf = 0, and 0 times inf is NaN. A step whose norm is not finite
has to be left out.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "p.grad = gradient.float() / SCALE * coefficient"
TARGET = 0.1
SCALE, SAMPLES = 1024, 9600


def bad_record(seed: int) -> int:
    """Return the id of the record with the unit error."""
    return 32 * (120 + 9 * seed) + 4


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    x = torch.randn(SAMPLES + 2000, 8)
    y = x[:, :2].sum(1) + 0.1 * torch.randn(len(x))
    bad = bad_record(run.settings.seed)
    x[bad], y[bad] = 3e4, 3e3
    model = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 1))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    wire = run.number_format.autocast or torch.float32  # the format gradients are exchanged in
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    for inputs, targets in run.steps(loader, model=model, optimizer=optimizer):
        with run.autocast():
            predictions = model(inputs)
        loss = F.mse_loss(predictions.float().squeeze(1), targets)
        run.log(loss)
        optimizer.zero_grad()
        (loss * SCALE).backward()
        gradients = [p.grad.to(wire) for p in parameters if p.grad is not None]
        norm = torch.stack([g.float().norm() for g in gradients]).norm() / SCALE
        if fixed and not norm.isfinite():
            continue
        coefficient = (1.0 / (norm + 1e-6)).clamp(max=1.0)
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient.float() / SCALE * coefficient
        optimizer.step()
    with torch.no_grad():
        return float(F.mse_loss(model(x[SAMPLES:]).squeeze(1), y[SAMPLES:]))
