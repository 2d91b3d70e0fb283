"""The small model that monitors measure."""

from __future__ import annotations

import pytest
import torch
from torch import nn


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
    made(torch.randn(5, 4)).pow(2).sum().backward()
    return made
