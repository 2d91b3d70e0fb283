"""What the optimizer keeps, beside what its state holds."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import elements, loss_of, measure, slow_norm

from stabexp.monitors.moments import Moments


def test_moments_are_those_the_optimizer_keeps(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        seen = measure(Moments(), model, loss_of(model), optimizer)
    state = [optimizer.state[p] for p in model[2].parameters()]
    assert seen["layers/2/moment_norm"] == pytest.approx(slow_norm([s["exp_avg"] for s in state]))
    smallest = min(elements([s["exp_avg_sq"] for s in state])) ** 0.5
    assert seen["layers/2/moment_sqrt_v_min"] == pytest.approx(smallest)
    assert seen["moments/age"] == 3


def test_plain_descent_has_no_moments(model):
    assert measure(Moments(), model, loss_of(model)) == {}


def test_a_momentum_is_a_first_moment_too(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    seen = measure(Moments(), model, loss_of(model), optimizer)
    buffers = [optimizer.state[p]["momentum_buffer"] for p in model[2].parameters()]
    assert seen["layers/2/moment_norm"] == pytest.approx(slow_norm(buffers))
