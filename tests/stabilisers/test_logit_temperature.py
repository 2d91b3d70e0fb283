"""Logits are divided while the model trains, and are its own when it is evaluated."""

from __future__ import annotations

import pytest
import torch
from stabilisers.stabilised import foreign
from torch import nn

from stabexp.errors import TrainingError
from stabexp.stabilisers import build


def test_only_training_sees_the_temperature():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.Identity())
    x = torch.randn(4, 2)
    plain = model(x)
    stabiliser = build({"logit_temperature": {"temperature": 1.25}})["logit_temperature"]
    stabiliser.attach(model, [], step=0)  # the last module with parameters gives the logits
    assert torch.equal(model(x), plain / 1.25)
    assert torch.equal(model.eval()(x), plain)
    stabiliser.detach()
    assert torch.equal(model.train()(x), plain)


def test_what_gives_no_tensor_is_refused():
    model = nn.LSTM(2, 2)
    stabiliser = build({"logit_temperature": {"module": "*"}})["logit_temperature"]
    stabiliser.attach(model, [], step=0)
    with pytest.raises(TrainingError, match="a LSTM gives a tuple, expected a tensor of logits"):
        model(torch.randn(3, 2))
    stabiliser.detach()


def test_it_says_what_was_divided(saves):
    records, _, events = foreign("own order", {"logit_temperature": {}})
    assert [event["message"] for event in events] == ["divides the output of head by 1.2"]
    assert len(records) == 8


def test_a_rate_at_the_edge_trains_through(saves):
    saves("logit_temperature")


def test_a_compiled_model_runs_as_it_was_written():
    """Code that is compiled already would not see a hook that comes later."""
    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    compiled = torch.compile(model, backend="eager")
    x = torch.randn(4, 2)
    plain = compiled(x)
    stabiliser = build({"logit_temperature": {"temperature": 2.0}})["logit_temperature"]
    stabiliser.attach(compiled, [], step=0)
    assert torch.equal(compiled(x), plain / 2)
    assert "runs eagerly" in stabiliser.drain_events()[0]["message"]
    stabiliser.detach()
    assert torch.equal(compiled(x), plain)
