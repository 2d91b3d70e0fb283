"""Real inputs, enough of them that a sample can come up for the first time after hundreds of steps.

Digits: scikit-learn's 1,797 images, each also shifted by one pixel in eight directions. Text: the
source of Python's standard library, by characters.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from stabexp.tasks.data import InMemory
from stabexp.tasks.digits import digits
from stabexp.tasks.text import tokens

WINDOWS = 16_000
"""Windows of text in a dataset."""


@cache
def shifted_digits() -> tuple[Tensor, Tensor]:
    """Return images (16173, 1, 8, 8) float32 in 0..1 and labels (16173,) int64. Do not write."""
    images, labels = digits()
    moves = [(x, y) for x in (0, -1, 1) for y in (0, -1, 1)]
    return torch.cat([_moved(images, x, y) for x, y in moves]), labels.repeat(len(moves))


def _moved(images: Tensor, x: int, y: int) -> Tensor:
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1))
    return padded[:, :, 1 + y : 9 + y, 1 + x : 9 + x]


def digit_samples() -> InMemory:
    """Return (image, label, weight) samples; every weight is one."""
    images, labels = shifted_digits()
    return InMemory(images, labels, torch.ones(len(labels)))


def text_samples(context: int) -> InMemory:
    """Return (inputs (context,), next characters (context,), weight) samples."""
    text = tokens()
    stride = (len(text) - context - 1) // WINDOWS
    windows = text.unfold(0, context + 1, stride)[:WINDOWS].long()
    inputs, targets = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
    return InMemory(inputs, targets, torch.ones(WINDOWS))
