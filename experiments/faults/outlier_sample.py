"""Digits with one broken sample: a sensor glitch made it far too bright, and its label is wrong."""

from __future__ import annotations

import torch
from pydantic import Field

from stabexp.tasks.base import Dataset
from stabexp.tasks.data import InMemory
from stabexp.tasks.digits import digits
from stabexp.tasks.mlp import MLP


class OutlierSample(MLP):
    """Say which digit an image shows, where one image is broken."""

    broken: int = Field(1234, ge=0)
    """Id of the broken sample."""

    factor: float = Field(1000.0, gt=0)
    """How many times too bright it is."""

    def dataset(self) -> Dataset:
        images, labels = digits()
        labels = labels.clone()
        labels[self.broken] = (labels[self.broken] + 5) % 10  # nobody could label it
        factors = torch.ones(len(labels), 1, 1, 1)
        factors[self.broken] = self.factor
        return InMemory(images * factors, labels)
