"""A decay dose is training with that decay."""

from __future__ import annotations

import pytest
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, course, differ


def times(factor):
    def scale(model, optimizer, step):
        for group in optimizer.param_groups:
            group["weight_decay"] *= factor

    return Hand(start=scale)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("factor", [0.0, 0.3, 4.0])
def test_a_factor_is_that_decay_from_the_start(optimizer, factor):
    written_out = course(optimizer, hand=times(factor))
    assert_same_bits(written_out, course(optimizer, interventions={"weight_decay": factor}))
    assert differ(written_out, course(optimizer))


@pytest.mark.parametrize("how", [{"scaled": True}, {"clip": 0.05}, {"accumulate": 3}])
def test_it_holds_with_scaler_clip_and_accumulation(how):
    written_out = course("adamw", hand=times(0.5), **how)
    assert_same_bits(written_out, course("adamw", interventions={"weight_decay": 0.5}, **how))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_factor_one_changes_nothing(optimizer):
    assert_same_bits(course(optimizer), course(optimizer, interventions={"weight_decay": 1.0}))
