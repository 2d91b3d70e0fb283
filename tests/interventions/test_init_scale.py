"""Smaller initial weights are the model's own weights, made smaller before the first step."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, course, differ

from stabexp.interventions import build
from stabexp.training.changes import Changes

MATRICES = {"encoder.0.weight", "encoder.2.weight", "head.weight"}


def smaller(model, optimizer, step):
    with torch.no_grad():
        for name in MATRICES:
            model.get_parameter(name).mul_(0.1)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_factor_is_written_out_before_the_first_step(optimizer):
    written_out = course(optimizer, hand=Hand(start=smaller))
    assert_same_bits(written_out, course(optimizer, interventions={"init_scale": 0.1}))
    assert differ(written_out, course(optimizer))


def test_later_than_step_0_nothing_is_scaled():
    given = {"init_scale": 0.1}
    assert_same_bits(course(), course(interventions=given, scratch=False))
    assert_same_bits(course(), course(interventions={"init_scale": 1.0}))


def test_tied_weights_are_scaled_once_and_frozen_ones_not_at_all():
    model = torch.nn.ModuleDict(
        {
            "embed": torch.nn.Embedding(5, 4),
            "out": torch.nn.Linear(4, 5),
            "base": torch.nn.Linear(4, 4),
        }
    )
    model["out"].weight = model["embed"].weight
    model["base"].requires_grad_(False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    Changes(build({"init_scale": 0.5})).begin(model, optimizer, scratch=True)
    after = dict(model.named_parameters())
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"embed.weight"}
    assert torch.equal(after["embed.weight"], before["embed.weight"] * 0.5)
