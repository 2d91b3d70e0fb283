"""Layer norms beside the slow computation."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import figures, loss_of, measure, slow_norm, weight_norms_of
from torch import nn

from stabexp.monitors.layers import Layers


def test_norms_are_those_of_each_modules_own_parameters(model):
    monitor = Layers()
    seen = measure(monitor, model, loss_of(model))
    expected = {}
    for name in ("0", "2"):
        own = list(model.get_submodule(name).parameters())
        expected[f"layers/{name}/grad_norm"] = slow_norm([p.grad for p in own])
        expected[f"layers/{name}/weight_norm"] = slow_norm(own)
    assert seen == pytest.approx(expected, rel=1e-5)


def test_norms_pass_over_parameters_without_a_gradient_and_name_the_root(model):
    model[0].bias.requires_grad_(False)
    model.register_parameter("scale", nn.Parameter(torch.ones(2)))
    seen = measure(Layers(), model, loss_of(model))
    assert seen["layers/0/grad_norm"] == pytest.approx(slow_norm([model[0].weight.grad]))
    assert "layers/model/grad_norm" not in seen
    monitor = Layers()
    monitor.attach(model)
    everything = list(model.parameters())
    after = figures(monitor.after_update(everything, weight_norms_of(everything)))
    assert after["layers/model/weight_norm"] == pytest.approx(2**0.5)


def test_layer_norms_of_half_precision_weights_do_not_overflow():
    model = nn.Linear(300, 300, bias=False).to(torch.float16)
    with torch.no_grad():
        model.weight.fill_(300.0)  # the norm is 90,000: beyond float16, though no element is
    monitor = Layers()
    monitor.attach(model)
    weights = list(model.parameters())
    seen = figures(monitor.after_update(weights, weight_norms_of(weights)))
    assert seen["layers/model/weight_norm"] == pytest.approx(90_000, rel=1e-3)
