"""Layers at other rates are parameter groups at other rates, and a zero leaves a layer out."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import (
    OPTIMIZERS,
    Hand,
    Net,
    assert_same_bits,
    course,
    differ,
    parts,
)
from torch import nn

from stabexp.errors import ConfigError
from stabexp.interventions import build
from stabexp.training.changes import Changes


def grouped(optimizer, *, tensor_rate=False):
    """The same training with a group, and a rate, for every layer."""
    torch.manual_seed(3)
    model = Net()
    groups = [
        {"params": list(model.encoder[0].parameters()), "lr": 0.02 * 0.1},
        {"params": list(model.encoder[2].parameters()), "lr": 0.02 * 0.5},
        {"params": list(model.norm.parameters()), "lr": 0.02},
        {"params": list(model.head.parameters()), "lr": 0.05 * 3.0, "weight_decay": 0.3},
    ]
    return parts(optimizer, tensor_rate=tensor_rate, groups=groups, model=model)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("how", [{}, {"scaled": True}, {"accumulate": 2}])
def test_factors_are_groups_with_rates_of_their_own(optimizer, how):
    written_out = course(optimizer, make=grouped, scheduled=False, **how)
    given = {"layer_rate": "encoder=0.1,encoder.2=0.5,head=3"}
    changed = course(optimizer, interventions=given, scheduled=False, **how)
    assert_same_bits(written_out, changed)
    assert differ(written_out, course(optimizer, scheduled=False, **how))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["encoder", "head", "encoder.2.weight"])
def test_zero_leaves_the_layer_out_of_every_update(optimizer, name):
    def drop(model, opt, step):
        for path, parameter in model.named_parameters():
            if path == name or path.startswith(f"{name}."):
                parameter.grad = None

    written_out = course(optimizer, hand=Hand(before=drop), scaled=True)
    changed = course(optimizer, interventions={"layer_rate": f"{name}=0"}, scaled=True)
    assert_same_bits(written_out, changed)
    frozen = [key for key in changed[0] if key == name or key.startswith(f"{name}.")]
    assert all(torch.equal(changed[0][key], changed[-1][key]) for key in frozen)


def test_a_frozen_layer_survives_gradients_that_are_not_finite():
    given = {"layer_rate": "*=0"}
    changed = course("adamw", interventions=given, overflow_at=2)
    assert_same_bits(changed[:1] * 6, changed)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_factor_one_changes_nothing(optimizer):
    given = {"layer_rate": "encoder.0=1,head=1.0"}
    assert_same_bits(course(optimizer), course(optimizer, interventions=given))


def test_the_whole_model_at_a_factor_is_the_rate_at_that_factor():
    def halve(model, optimizer, step):
        for group in optimizer.param_groups:
            group["lr"] *= 0.5

    written_out = course("adam", hand=Hand(start=halve), scheduled=False)
    changed = course("adam", interventions={"layer_rate": "*=0.5"}, scheduled=False)
    assert_same_bits(written_out, changed)


def test_a_name_is_a_module_not_the_beginning_of_a_word():
    class Numbered(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(6, 6) for _ in range(11)])
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            for block in self.blocks:
                x = block(x).tanh()
            return self.head(x)

    def make(optimizer, *, tensor_rate=False):
        torch.manual_seed(3)
        model = Numbered()
        return parts(optimizer, groups=[{"params": list(model.parameters())}], model=model)

    changed = course("sgd", make=make, interventions={"layer_rate": "blocks.1=0"})
    still = {key for key in changed[0] if torch.equal(changed[0][key], changed[-1][key])}
    assert still == {"blocks.1.weight", "blocks.1.bias"}


def test_a_compiled_model_has_the_names_of_the_model_inside():
    def make(optimizer, *, tensor_rate=False):
        model, made = parts(optimizer)
        return torch.compile(model, backend="eager"), made

    model, made = make("sgd")
    given = {"layer_rate": "head=0", "exact_modules": "encoder.0"}
    changes = Changes(build(given))
    changes.begin(model, made, scratch=True)
    before = model.head.weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    changes.update_of(made).lend(made, step=0, lr_scale=1.0)
    made.step()
    changes.update_of(made).take_back(made)
    changes.end()
    assert torch.equal(model.head.weight, before)
    assert model.norm.weight.min() < 1.0


def test_a_weight_with_two_names_has_the_smaller_factor():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "out": nn.Linear(4, 5)})
    model["out"].weight = model["embed"].weight
    made = torch.optim.SGD(model.parameters(), 0.1)
    changes = Changes(build({"layer_rate": "out=0"}))
    changes.begin(model, made, scratch=True)
    model["embed"].weight.grad = torch.ones(5, 4)
    before = model["embed"].weight.detach().clone()
    changes.update_of(made).lend(made, step=0, lr_scale=1.0)
    made.step()
    changes.update_of(made).take_back(made)
    assert torch.equal(model["embed"].weight, before)


@pytest.mark.parametrize(
    ("dose", "message"),
    [
        ("heed=0", "the model has no module 'heed'; did you mean 'head'"),
        ("attention.12=0", "allowed: encoder, head, norm"),
    ],
)
def test_a_layer_that_is_not_there_is_named(dose, message):
    with pytest.raises(ConfigError, match=message):
        course(interventions={"layer_rate": dose})
