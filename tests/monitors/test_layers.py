"""Layer norms against the slow and obvious computation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import norms_of, slow_norm
from torch import nn

from stabexp.monitors import Layers


def test_layer_norms_are_those_of_each_modules_own_parameters(model):
    monitor = Layers()
    monitor.attach(model)
    parameters = list(model.parameters())
    measured = {
        **monitor.before_update(parameters, norms_of(parameters)),
        **monitor.after_update(),
    }
    expected = {}
    for name in ("0", "2"):
        own = list(model.get_submodule(name).parameters())
        expected[f"layers/{name}/grad_norm"] = slow_norm([p.grad for p in own])
        expected[f"layers/{name}/weight_norm"] = slow_norm(own)
    assert {k: v.item() for k, v in measured.items()} == pytest.approx(expected, rel=1e-5)


def test_layer_norms_pass_over_parameters_without_a_gradient_and_name_the_root(model):
    model[0].bias.grad = None
    model.register_parameter("scale", nn.Parameter(torch.ones(2)))
    monitor = Layers()
    monitor.attach(model)
    parameters = [p for p in model.parameters() if p.grad is not None]
    measured = monitor.before_update(parameters, norms_of(parameters))
    assert measured["layers/0/grad_norm"].item() == pytest.approx(slow_norm([model[0].weight.grad]))
    assert "layers/model/grad_norm" not in measured
    assert "layers/model/weight_norm" in monitor.after_update()


def test_layer_norms_of_half_precision_weights_do_not_overflow():
    model = nn.Linear(300, 300, bias=False).to(torch.float16)
    with torch.no_grad():
        model.weight.fill_(300.0)  # the norm is 90,000: beyond float16, though no element is
    monitor = Layers()
    monitor.attach(model)
    norm = monitor.after_update()["layers/model/weight_norm"].item()
    assert norm == pytest.approx(90_000, rel=1e-3)
