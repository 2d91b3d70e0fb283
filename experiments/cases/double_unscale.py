"""A mixed-precision training stands still; in full precision it learns.

The loop scales the loss by 65,536 and divides the gradients by that twice: once to look for
overflows, once before the update. In full precision the scale is 1 and the mistake does not show,
so the precision looks guilty.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "loss_scale.unscale(parameters)"
TARGET = 0.8
SAMPLES = 9600


class LossScale:
    """The factor on the loss; it halves when a gradient overflows."""

    def __init__(self, value: float) -> None:
        self.value = value

    def unscale(self, parameters: list[nn.Parameter]) -> None:
        """Divide the gradients by the scale."""
        for p in parameters:
            assert p.grad is not None
            p.grad.div_(self.value)

    def overflowed(self, parameters: list[nn.Parameter]) -> bool:
        """Unscale the gradients, and halve the scale when one of them is not finite."""
        self.unscale(parameters)
        if all(p.grad.isfinite().all() for p in parameters if p.grad is not None):
            return False
        self.value /= 2
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the scale for a checkpoint."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the scale of a checkpoint."""
        self.value = state["value"]


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    teacher = torch.randn(12, 6)
    x = torch.randn(SAMPLES + 2000, 12)
    y = (x @ teacher).argmax(1)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    loss_scale = LossScale(2.0**16 if run.number_format.half else 1.0)
    data = TensorDataset(x[:SAMPLES], y[:SAMPLES])
    loader = DataLoader(data, batch_size=run.settings.batch_size)
    steps = run.steps(loader, model=model, optimizer=optimizer, extra={"loss_scale": loss_scale})
    for inputs, labels in steps:
        with run.autocast():
            logits = model(inputs)
        loss = F.cross_entropy(logits.float(), labels)
        run.log(loss)
        optimizer.zero_grad()
        (loss * loss_scale.value).backward()
        if loss_scale.overflowed(parameters):
            continue
        if not fixed:
            loss_scale.unscale(parameters)
        optimizer.step()
    with torch.no_grad():
        return float(F.cross_entropy(model(x[SAMPLES:]), y[SAMPLES:]))
