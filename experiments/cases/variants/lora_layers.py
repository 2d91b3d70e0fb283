"""A classifier with low-rank adapters in its hidden layers blows up within a few steps.

Each adapter is multiplied by alpha, not by alpha / r. Same kind as lora_alpha_not_over_r, in
another shape.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from stabexp import Run

DEFECT = "return out + self.lora_b(self.lora_a(x)) * self.scaling"
TARGET = 0.9
RANK, ALPHA, SAMPLES = 16, 32.0, 9600


class LoraLinear(nn.Linear):
    """A frozen linear layer with a trainable low-rank update."""

    def __init__(self, inputs: int, outputs: int, *, scaling: float) -> None:
        super().__init__(inputs, outputs)
        self.requires_grad_(False)
        self.lora_a = nn.Linear(inputs, RANK, bias=False)
        self.lora_b = nn.Linear(RANK, outputs, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.scaling = scaling

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out + self.lora_b(self.lora_a(x)) * self.scaling


def train(run: Run, *, fixed: bool = False) -> float:
    """Train, and return the loss on data that was not trained on."""
    scaling = ALPHA / RANK if fixed else ALPHA
    x = torch.randn(SAMPLES + 2000, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    model = nn.Sequential(
        LoraLinear(20, 48, scaling=scaling), nn.ReLU(), LoraLinear(48, 5, scaling=scaling)
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.02, momentum=0.9)
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
