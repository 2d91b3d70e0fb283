"""A skipped update leaves weights and moments bit for bit where they were; the schedule goes on."""

from __future__ import annotations

import copy

import pytest
import torch
from interventions.foreign_loops import same
from interventions.hand_written import OPTIMIZERS, Hand, assert_same_bits, bits, course, parts

from stabexp.interventions import build


class Counting(torch.optim.SGD):
    """Counts its updates in its groups, as some adaptive optimizers do."""

    def step(self):
        super().step()
        for group in self.param_groups:
            group["updates"] = group.get("updates", 0) + 1


def no_gradients(model, optimizer, step):
    if step in (2, 3):
        for parameter in model.parameters():
            parameter.grad = None


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, Counting, torch.optim.Adagrad])
def test_nothing_of_the_training_moves_at_a_skipped_step(optimizer, scaled):
    moved = []

    def remember(model, made, step):
        moved.append(copy.deepcopy(made.state_dict()))

    skipped = course(
        optimizer,
        interventions={"skip_updates": "2-3"},
        hand=Hand(after=remember),
        scaled=scaled,
        clip=0.5,
    )
    plain = course(optimizer, hand=Hand(before=no_gradients), scaled=scaled, clip=0.5)
    assert_same_bits(skipped, plain)
    assert same(skipped[3], skipped[1]) == ""
    assert same(skipped[4], skipped[1]) != ""
    for group, before in zip(moved[3]["param_groups"], moved[1]["param_groups"], strict=True):
        assert {**group, "lr": None} == {**before, "lr": None}
        assert group["lr"] < before["lr"]
    assert same(moved[3]["state"], moved[1]["state"]) == ""


def test_no_state_is_made_by_an_update_that_is_skipped():
    model, optimizer = parts("adam")
    skipped = course("adam", interventions={"skip_updates": "0-9"})
    assert all(same(state, bits(model, optimizer)) == "" for state in skipped)


def test_steps_and_ranges_are_read_with_both_ends():
    (skips,) = build({"skip_updates": "20-22, 40"})
    assert [step for step in range(60) if skips.skips_update(step)] == [20, 21, 22, 40]
