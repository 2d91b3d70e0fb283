"""Kept state is a loop without the fault that loses it; fresh state is a new optimizer."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, course, differ

KEPT, FRESH = {"optimizer_state": "kept"}, {"optimizer_state": "fresh"}


def cleared(model, optimizer, step):
    if step == 3:
        optimizer.state.clear()


def replaced(model, optimizer, step):
    if step == 3:
        optimizer.state = defaultdict(dict)


def loaded_empty(model, optimizer, step):
    if step == 3:
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": {}, "param_groups": groups})


def one_forgotten(model, optimizer, step):
    if step in {2, 4}:
        del optimizer.state[model.head.weight]


def poisoned(model, optimizer, step):
    if step == 3:
        for state in optimizer.state.values():
            for value in state.values():
                value.fill_(7.0)


def given_too_early(model, optimizer, step):
    if step == 0:
        optimizer.state[model.head.weight]["momentum_buffer"] = torch.ones_like(model.head.weight)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fault", [cleared, replaced, loaded_empty, one_forgotten, poisoned])
def test_kept_undoes_whatever_a_loop_does_to_the_state(optimizer, fault):
    healthy = course(optimizer, scaled=True)
    hand = Hand(between=fault)
    assert_same_bits(healthy, course(optimizer, hand=hand, interventions=KEPT, scaled=True))
    assert differ(healthy, course(optimizer, hand=hand, scaled=True))


def test_kept_removes_state_from_before_the_first_update():
    hand = Hand(between=given_too_early)
    assert_same_bits(course("sgd"), course("sgd", hand=hand, interventions=KEPT))
    assert differ(course("sgd"), course("sgd", hand=hand))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("given", [KEPT, FRESH])
def test_untouched_state_at_step_0_is_the_control(optimizer, given):
    assert_same_bits(course(optimizer), course(optimizer, interventions=given))
    how = {"overflow_at": 2, "scaled": True}
    assert_same_bits(course(optimizer, **how), course(optimizer, interventions=given, **how))


def test_state_that_is_not_finite_but_untouched_is_left_alone():
    objects = []

    def look(model, optimizer, step):
        objects.append(id(optimizer.state[model.head.weight]["momentum_buffer"]))

    how = {"overflow_at": 1, "hand": Hand(after=look)}
    assert_same_bits(course("sgd", overflow_at=1), course("sgd", interventions=KEPT, **how))
    assert len(set(objects)) == 1


def test_kept_goes_back_to_the_last_update_that_was_made():
    how = {"overflow_at": 3, "scaled": True}
    changed = course("adamw", hand=Hand(between=cleared), interventions=KEPT, **how)
    assert_same_bits(course("adamw", **how)[4:], changed[4:])


MORE = {**OPTIMIZERS, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}


@pytest.mark.parametrize("optimizer", MORE)
def test_fresh_is_a_new_optimizer_over_the_same_weights(optimizer):
    """Two steps of training before the fork, then either a rebuilt optimizer or the change."""
    made = MORE[optimizer]

    def old(model, opt, step):
        for _ in range(2):
            model(torch.ones(4, 6)).square().sum().backward()
            opt.step()
            opt.zero_grad()

    def rebuilt(model, opt, step):
        old(model, opt, step)
        plain = [dict(group) for group in opt.param_groups]
        opt.state = type(opt)(plain).state

    written_out = course(made, hand=Hand(start=rebuilt))
    assert_same_bits(written_out, course(made, hand=Hand(start=old), interventions=FRESH))
    assert differ(written_out, course(made, hand=Hand(start=old)))
