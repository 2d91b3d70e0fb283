"""A task whose batches are padded to their longest sample: a long one needs much memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.recovery.programs import BATCH, INPUTS, NOISE, SAMPLES, STRUCK, WIDTH
from stabexp import Task
from stabexp.training.data import SampleOrder

LONG, SHORT, CHANNELS = 400_000, 16, 8
"""Tokens of the long sample and of the others, and values that each token becomes."""
MEMORY = LONG * CHANNELS * 4 * BATCH
"""Bytes that the long sample's batch needs."""


class Padded(Task):
    """Learn a noisy function of eight inputs from padded sequences."""

    seed: int = 0
    """Decides the data."""

    def dataset(self) -> torch.utils.data.TensorDataset:
        generator = torch.Generator().manual_seed(1000 + self.seed)
        x = torch.randn(SAMPLES, INPUTS, generator=generator)
        y = torch.sin(x[:, :1]) + 0.7 * x[:, 1:2]
        y = y + NOISE * torch.randn(SAMPLES, 1, generator=generator)
        lengths = torch.full((SAMPLES,), SHORT)
        lengths[SampleOrder(SAMPLES, seed=self.seed).ids(STRUCK * BATCH, BATCH)[7]] = LONG
        return torch.utils.data.TensorDataset(x, y, lengths)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        inputs, targets, lengths = batch
        padded = torch.zeros(len(inputs), int(lengths.max()), CHANNELS)
        padded += inputs[:, None, :CHANNELS]
        return F.mse_loss(model(padded[:, :SHORT].mean(dim=1)), targets)
