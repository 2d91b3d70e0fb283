"""What modules put out, beside the slow computation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import figures, measure, norms_of

from stabexp.monitors.activations import Activations


def test_activations_are_those_of_each_modules_first_output(model):
    torch.manual_seed(2)
    x = torch.randn(6, 4)
    out = torch.relu(model[0](x)).detach()
    seen = measure(Activations(), model, lambda: model(x).pow(2).sum() + model(100 * x).sum() * 0.0)
    assert seen["layers/1/activation_max"] == pytest.approx(out.max().item())
    assert seen["layers/1/activation_min"] == 0.0
    assert seen["layers/1/activation_rms"] == pytest.approx(out.pow(2).mean().sqrt().item())
    assert seen["layers/1/activation_zeros"] == pytest.approx((out == 0).float().mean().item())
    assert {name.split("/")[1] for name in seen} == {"0", "1", "2"}


def test_an_evaluation_between_two_steps_is_not_taken_for_the_step(model):
    monitor = Activations()
    monitor.attach(model)
    monitor.step_begins()
    with torch.no_grad():
        model(torch.full((2, 4), 1e6))
    model(torch.ones(2, 4)).sum().backward()
    parameters = list(model.parameters())
    seen = figures(monitor.before_update(parameters, norms_of(parameters)))
    assert seen["layers/0/activation_max"] < 1e3
