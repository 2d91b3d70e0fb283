"""What every monitor promises."""

from __future__ import annotations

import pytest
import torch
from monitors.norms import norms_of, weight_norms_of
from torch import nn

from stabexp.errors import ConfigError
from stabexp.monitors import DEFAULT_MONITORS, MONITORS, Monitor, build

ON_THE_HOST = {"loss_curve", "loss_scale", "batch_size", "resources"}
"""Those that make their numbers of the records."""


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
def test_measures_tensors_named_one_by_one_and_leaves_nothing_behind(name):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Linear(4, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    monitor = MONITORS[name]()
    monitor.attach(model, [optimizer])
    measured = {}
    for _ in range(2):
        monitor.step_begins()
        model(torch.randn(3, 5, 4)).pow(2).sum().backward()
        parameters = list(model.parameters())
        measured = dict(monitor.before_update(parameters, norms_of(parameters)))
        optimizer.step()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        measured |= monitor.after_update(parameters, weight_norms_of(parameters))
    monitor.step_begins()
    monitor.detach()
    assert bool(measured) == (name not in ON_THE_HOST | {"ranks"})  # of one process
    for names, value in measured.items():
        assert value.shape == (() if isinstance(names, str) else (len(names),))
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in model.modules()]
    assert not any(hooks)
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
