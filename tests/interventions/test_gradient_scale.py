"""A gradient dose multiplies what the optimizer sees, after unscaling and clipping."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, course, differ


def times(factor):
    def scale(model, optimizer, step):
        for parameter in model.parameters():
            parameter.grad.mul_(factor)

    return Hand(before=scale)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("how", [{}, {"scaled": True}, {"clip": 0.05}, {"accumulate": 3}])
def test_a_factor_is_written_out_just_before_the_update(optimizer, how):
    written_out = course(optimizer, hand=times(0.3), **how)
    assert_same_bits(written_out, course(optimizer, interventions={"gradient_scale": 0.3}, **how))
    assert differ(written_out, course(optimizer, **how))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_factor_one_changes_nothing(optimizer):
    assert_same_bits(course(optimizer), course(optimizer, interventions={"gradient_scale": 1.0}))


def test_the_loop_sees_its_own_gradients_after_the_update():
    seen, control = [], []

    def look(into):
        return Hand(after=lambda model, opt, step: into.append(model.head.weight.grad.clone()))

    course(hand=look(seen), interventions={"gradient_scale": 0.5}, steps=1)
    course(hand=look(control), steps=1)
    assert torch.equal(seen[0], control[0])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_the_scaler_leaves_out_stays_left_out(optimizer):
    how = {"scaled": True, "overflow_at": 2}
    written_out = course(optimizer, hand=times(0.5), **how)
    assert_same_bits(written_out, course(optimizer, interventions={"gradient_scale": 0.5}, **how))
