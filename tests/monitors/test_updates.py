"""Update ratios beside the slow computation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import measure, slow_norm
from torch import nn

from stabexp.monitors.updates import Updates


@pytest.mark.parametrize("sample", [None, 256])
def test_the_update_ratio_is_how_far_a_layer_moved(sample):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64, bias=False))
    before = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(8, 64)
    seen = measure(Updates(sample=sample), model, lambda: model(x).pow(2).mean())
    moved = [p.detach() - old for p, old in zip(model.parameters(), before, strict=True)]
    expected = {
        "layers/0/update_ratio": slow_norm(moved[:2]) / slow_norm(before[:2]),
        "layers/1/update_ratio": slow_norm(moved[2:]) / slow_norm(before[2:]),
    }
    assert seen == pytest.approx(expected, rel=1e-4 if sample is None else 0.2)
