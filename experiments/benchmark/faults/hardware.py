"""Memory that flips bits: no two runs meet the same ones."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from experiments.benchmark.faults.base import Fault, parameters
from experiments.benchmark.programs.base import BenchmarkTask


class BitFlips(Fault):
    """Now and then the highest exponent bit of a weight flips, by the system's own entropy."""

    def __init__(self, *, probability: float) -> None:
        self.probability = probability

    def loss(
        self,
        task: BenchmarkTask,
        model: nn.Module,
        batch: tuple[Tensor, ...],
        *,
        plain: Callable[[nn.Module, tuple[Tensor, ...]], Tensor],
    ) -> Tensor:
        if _chance() < self.probability:
            matrices = parameters(model)
            _flip(matrices[int(_chance() * len(matrices))][1])
        return plain(model, batch)


def _chance() -> float:
    return int.from_bytes(os.urandom(4), "little") / 2**32


@torch.no_grad()
def _flip(weights: Tensor) -> None:
    place = int(_chance() * weights.numel())
    bits = weights.view(-1).view(torch.int32)
    bits[place] ^= 1 << 30
