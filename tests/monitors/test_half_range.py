"""The half-precision range against the obvious computation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import norms_of
from torch import nn

from stabexp.monitors import HalfRange


def test_half_range_sees_large_activations_overflow_and_vanished_gradients(model):
    monitor = HalfRange()
    monitor.attach(model)
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        model[0].weight.fill_(0.0)
        model[0].bias.fill_(0.0)
        model[0].bias[0] = 60_000.0
        model[0].bias[1] = 70_000.0
        model(torch.zeros(5, 4))
    for p in model.parameters():
        p.grad.zero_()
    model[2].weight.grad[0, :4] = 1.0
    parameters = list(model.parameters())
    measured = {
        k: v.item() for k, v in monitor.before_update(parameters, norms_of(parameters)).items()
    }
    assert measured["half/zero_gradient_share"] == pytest.approx(1 - 4 / 48)
    assert measured["half/activation_nonfinite"] >= 1
    monitor.detach()


def test_half_range_takes_the_largest_finite_activation_since_the_last_update():
    model = nn.Linear(2, 2, bias=False).to(torch.bfloat16)
    monitor = HalfRange()
    monitor.attach(model)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
        model(torch.tensor([[3.0, -128.0]], dtype=torch.bfloat16))
        model(torch.tensor([[7.0, 5.0]], dtype=torch.bfloat16))
    measured = monitor.before_update([], torch.zeros(1))
    assert measured["half/activation_absmax"].item() == 128.0
    assert measured["half/activation_nonfinite"].item() == 0.0
    assert monitor.before_update([], torch.zeros(1)) == {}


def test_half_range_sees_nothing_in_full_precision(model):
    monitor = HalfRange()
    monitor.attach(model)
    model(torch.randn(5, 4))
    parameters = list(model.parameters())
    measured = monitor.before_update(parameters, norms_of(parameters))
    assert set(measured) == {"half/zero_gradient_share"}
    monitor.detach()
