"""Digits on a machine whose memory is faulty: once in a while a bit of a weight flips.

The flips come from the operating system's entropy, not from any seed, so no replay meets the same
ones.
"""

from __future__ import annotations

import os

import torch
from pydantic import Field
from torch import Tensor, nn

from stabexp.tasks.mlp import MLP


class FaultyMemory(MLP):
    """Say which digit an image shows, while bits flip."""

    flip_probability: float = Field(0.04, ge=0, le=1)
    """Chance per step that one weight's highest exponent bit flips."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        if int.from_bytes(os.urandom(4), "little") < self.flip_probability * 2**32:
            _flip(next(model.parameters()))
        return super().loss(model, batch)


@torch.no_grad()
def _flip(weights: Tensor) -> None:
    place = int.from_bytes(os.urandom(4), "little") % weights.numel()
    bits = weights.view(-1).view(torch.int32)
    bits[place] ^= 1 << 30
