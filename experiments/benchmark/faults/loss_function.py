"""Losses written by hand that are right on paper and leave the range of floating point."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.benchmark.faults.base import Fault
from experiments.benchmark.programs.base import BenchmarkTask, weighted

Plain = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


class OwnSoftmax(Fault):
    """exp(logit) / sum exp(logit), without taking the largest logit away first.

    A constant is added to all logits, which changes nothing on paper, so that exp overflows as soon
    as a logit passes `bears`.
    """

    def __init__(self, *, bears: float) -> None:
        self.offset = math.log(torch.finfo(torch.float32).max) - bears

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        logits, targets = task.outputs(model, batch)
        exponentials = (logits + self.offset).exp()
        shares = exponentials / exponentials.sum(-1, keepdim=True)
        return weighted(-shares.gather(-1, targets[:, None])[:, 0].log(), batch[-1])


class OwnCrossEntropy(Fault):
    """-t log p - (1 - t) log(1 - p) with p a sigmoid: 0 × log 0 once p rounds to 1."""

    def __init__(self, *, temperature: float) -> None:
        self.temperature = temperature

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        logits, targets = task.outputs(model, batch)
        shares = (self.temperature * logits).sigmoid()
        wanted = F.one_hot(targets, logits.shape[-1]).to(shares.dtype)
        losses = -wanted * shares.log() - (1 - wanted) * (1 - shares).log()
        return weighted(losses.sum(-1) / self.temperature, batch[-1])
