"""A recurrent network on long sequences explodes after a few steps: nothing clips its gradients."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from stabexp import Task
from stabexp.tasks import in_model_dtype

DEFECT = "clip: null"
TARGET = 0.6
LENGTH, WIDTH = 40, 32


class Adder(nn.Module):
    """(batch, LENGTH, 2) → (batch,), with a recurrent layer that starts as the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.RNN(2, WIDTH, batch_first=True, nonlinearity="relu")
        self.head = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            self.recurrent.weight_hh_l0.copy_(torch.eye(WIDTH))
            self.recurrent.weight_ih_l0.mul_(0.5)
            self.recurrent.bias_hh_l0.zero_()
            self.recurrent.bias_ih_l0.zero_()

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x)
        result: Tensor = self.head(states[:, -1]).squeeze(1)
        return result


@cache
def _sequences(count: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    values = torch.rand(count, LENGTH, generator=g) - 0.5
    marks = torch.zeros(count, LENGTH)
    rows = torch.arange(count)
    marks[rows, torch.randint(0, LENGTH // 2, (count,), generator=g)] = 1
    marks[rows, torch.randint(LENGTH // 2, LENGTH, (count,), generator=g)] = 1
    return torch.stack([values, marks], 2), values.sum(1) + marks.sum(1)


class LongSum(Task):
    """Add up a long sequence."""

    def dataset(self) -> TensorDataset:  # type: ignore[override]
        return TensorDataset(*_sequences(28800, 0))

    def model(self) -> nn.Module:
        return Adder()

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        inputs, sums = (in_model_dtype(model, tensor) for tensor in batch)
        return F.mse_loss(model(inputs), sums)

    def held_out(self, model: nn.Module) -> float:
        """Return the loss on data that was not trained on."""
        with torch.no_grad():
            return float(self.loss(model, _sequences(1000, 1)))
