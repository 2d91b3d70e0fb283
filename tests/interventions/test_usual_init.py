"""Only weights that are far too wide are narrowed, and every other bit stays."""

from __future__ import annotations

import torch
from torch import nn

from stabexp.interventions import UsualInit
from stabexp.training.changes import Changes


def started(*, wide: float, on: bool, scratch: bool = True) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4))
    with torch.no_grad():
        model[2].weight.mul_(wide)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    changes = Changes([UsualInit(dose="on")] if on else [])
    changes.begin(model, optimizer, scratch=scratch)
    changes.end()
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_weight_that_is_too_wide_gets_the_usual_width():
    weight = started(wide=50.0, on=True)["2.weight"]
    assert abs(float(weight.std()) * 32**0.5 - 1) < 1e-5


def test_all_other_weights_keep_every_bit():
    narrowed, plain = started(wide=50.0, on=True), started(wide=50.0, on=False)
    for name in ("0.weight", "0.bias", "2.bias"):
        assert torch.equal(narrowed[name], plain[name])


def test_usual_weights_are_left_alone():
    narrowed, plain = started(wide=1.0, on=True), started(wide=1.0, on=False)
    assert all(torch.equal(narrowed[name], plain[name]) for name in plain)


def test_a_replay_from_a_later_checkpoint_is_left_alone():
    narrowed = started(wide=50.0, on=True, scratch=False)
    assert torch.equal(narrowed["2.weight"], started(wide=50.0, on=False)["2.weight"])
