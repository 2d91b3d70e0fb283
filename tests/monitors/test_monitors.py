"""Monitors against the slow and obvious computation, and what every one of them promises."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabexp.errors import ConfigError
from stabexp.monitors import DEFAULT_MONITORS, MONITORS, HalfRange, Layers, Monitor, build


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
    made(torch.randn(5, 4)).pow(2).sum().backward()
    return made


def norms_of(parameters):
    return torch.stack([p.grad.norm() for p in parameters])


def slow_norm(tensors):
    return math.sqrt(sum(x * x for t in tensors for x in t.detach().flatten().tolist()))


@pytest.mark.parametrize("name", MONITORS)
def test_name_file_and_class_agree_and_fields_are_documented(name):
    kind = MONITORS[name]
    assert issubclass(kind, Monitor)
    assert kind.__module__ == f"stabexp.monitors.{name}"
    assert kind.__name__ == "".join(part.title() for part in name.split("_"))
    assert all(field.description for field in kind.model_fields.values())
    assert not any(field.is_required() for field in kind.model_fields.values())
    assert set(DEFAULT_MONITORS) <= set(MONITORS)
    assert build({name: {"every": "5"}}) == build({name: {"every": 5}}) == (kind(every=5),)


@pytest.mark.parametrize("name", MONITORS)
def test_measures_scalars_on_the_device_and_leaves_nothing_behind(name, model):
    monitor = MONITORS[name]()
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    before = {key: value.clone() for key, value in model.state_dict().items()}
    monitor.attach(model)
    model(torch.randn(5, 4))
    parameters = list(model.parameters())
    measured = {
        **monitor.before_update(parameters, norms_of(parameters)),
        **monitor.after_update(),
    }
    monitor.detach()
    assert measured
    assert all(isinstance(value, torch.Tensor) and value.dim() == 0 for value in measured.values())
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


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


@pytest.mark.parametrize(
    ("monitors", "message"),
    [
        ({"layer": {}}, "monitors.layer: unknown monitor; did you mean 'layers'?"),
        ({"layers": {"evry": 1}}, "monitors.layers.evry: unknown key; did you mean 'every'?"),
        ({"layers": {"every": 0}}, "every: expected greater than or equal to 1, found 0"),
    ],
)
def test_a_wrong_name_or_argument_is_refused(monitors, message):
    with pytest.raises(ConfigError) as caught:
        build(monitors)
    assert message in str(caught.value)
