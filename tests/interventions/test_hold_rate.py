"""The rate stays what it was before the first replayed step, whatever a schedule does."""

from __future__ import annotations

import pytest
import torch
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, course, differ


def held():
    """Write the first step's rates into the groups around every update."""
    kept: dict[str, list] = {}

    def start(model, optimizer, step):
        kept["first"] = [float(group["lr"]) for group in optimizer.param_groups]

    def before(model, optimizer, step):
        kept["own"] = [float(group["lr"]) for group in optimizer.param_groups]
        put(optimizer, kept["first"])

    def after(model, optimizer, step):
        put(optimizer, kept["own"])

    def put(optimizer, rates):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    return Hand(start=start, before=before, after=after)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("how", [{}, {"scaled": True}, {"clip": 0.05}, {"accumulate": 2}])
def test_every_update_is_made_at_the_first_rate(optimizer, how):
    written_out = course(optimizer, hand=held(), **how)
    assert_same_bits(written_out, course(optimizer, interventions={"hold_rate": "on"}, **how))
    assert differ(written_out, course(optimizer, **how))


@pytest.mark.parametrize("optimizer", ["adam", "adamw fused"])
def test_a_rate_in_a_tensor_that_the_schedule_writes_into_is_held_too(optimizer):
    how = {"tensor_rate": True}
    written_out = course(optimizer, hand=held(), **how)
    assert_same_bits(written_out, course(optimizer, interventions={"hold_rate": "on"}, **how))
    assert differ(written_out, course(optimizer, **how))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_holding_a_constant_rate_changes_nothing(optimizer):
    control = course(optimizer, scheduled=False)
    changed = course(optimizer, scheduled=False, interventions={"hold_rate": "on"})
    assert_same_bits(control, changed)


@pytest.mark.parametrize("tensor_rate", [False, True])
def test_the_schedule_goes_on_and_the_loop_sees_its_own_rates(tensor_rate):
    def seen_by(into):
        def look(model, optimizer, step):
            into.append([(float(g["lr"]), id(g)) for g in optimizer.param_groups])

        return Hand(after=look)

    control, changed = [], []
    course("adam", hand=seen_by(control), tensor_rate=tensor_rate)
    given = {"hold_rate": "on", "weight_decay": 0.5, "layer_rate": "head=0.1,norm=0"}
    course("adam", hand=seen_by(changed), interventions=given, tensor_rate=tensor_rate)
    assert [[rate for rate, _ in row] for row in changed] == [
        [rate for rate, _ in row] for row in control
    ]
    assert len({ids for row in changed for _, ids in row}) == 2  # the same two dicts throughout


class Counting(torch.optim.SGD):
    """An optimizer that calls its parent's step, as torch hooks both, and counts in its groups."""

    def step(self):
        super().step()
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1


@pytest.mark.parametrize(
    "given", [{"hold_rate": "on"}, {"gradient_scale": 0.5, "layer_rate": "norm=0"}]
)
def test_an_optimizer_may_call_its_parent_and_write_into_its_groups(given):
    counts = []
    look = Hand(
        after=lambda model, opt, step: counts.append([g["count"] for g in opt.param_groups])
    )
    changed = course(Counting, hand=look, interventions=given, steps=3)
    assert counts == [[1, 1], [2, 2], [3, 3]]
    plain = course(torch.optim.SGD, interventions=given, steps=3)
    assert_same_bits(plain, changed)
