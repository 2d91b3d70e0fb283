"""What every monitor promises."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import norms_of

from stabexp.errors import ConfigError
from stabexp.monitors import DEFAULT_MONITORS, MONITORS, Monitor, build


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
