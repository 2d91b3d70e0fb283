"""Constant input to every kind of normalisation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import measure
from torch import nn

from stabexp.monitors.normalisation import Normalisation


class RootMeanSquareNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


NORMALISATIONS = {
    "layer": (nn.LayerNorm(8), (4, 6, 8), lambda x: x.__setitem__((slice(0, 2),), 3.0)),
    "batch": (nn.BatchNorm1d(8), (16, 8), lambda x: x.__setitem__((slice(None), slice(4)), 3.0)),
    "image batch": (
        nn.BatchNorm2d(4),
        (5, 4, 3, 3),
        lambda x: x.__setitem__((slice(None), slice(2)), 1e4),
    ),
    "group": (nn.GroupNorm(2, 8), (5, 8, 3), lambda x: x.__setitem__((slice(None), slice(4)), -7)),
    "rms": (nn.RMSNorm(8), (4, 8), lambda x: x.__setitem__((slice(0, 2),), 0.0)),
    "own rms": (RootMeanSquareNorm(), (4, 8), lambda x: x.__setitem__((slice(0, 2),), 0.0)),
}


@pytest.mark.parametrize("kind", NORMALISATIONS)
def test_half_of_what_a_normalisation_is_given_is_constant(kind):
    norm, shape, make_constant = NORMALISATIONS[kind]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), norm, nn.Linear(shape[-1], 1))
    x = torch.randn(shape)
    healthy = measure(Normalisation(), model, lambda: model(x).pow(2).sum())
    assert healthy["layers/1/norm_constant"] == 0.0
    assert healthy["layers/1/norm_variance"] > 0.01
    make_constant(x)
    seen = measure(Normalisation(), model, lambda: model(x).pow(2).sum())
    assert seen["layers/1/norm_constant"] == 0.5
