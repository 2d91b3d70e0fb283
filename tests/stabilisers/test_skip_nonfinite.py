"""A step that is not finite leaves nothing behind: no update, no momentum, no running statistic."""

from __future__ import annotations

import math

import pytest
import torch
from interventions.foreign_loops import Hand, same
from stabilisers.stabilised import by_hand, foreign, stabilised, state_of
from torch import nn

from stabexp.errors import TrainingError


class Poisoned(Hand):
    """Multiplies the loss of one step's batches, as a bad sample would."""

    bad = (3,)
    by = math.nan

    def loss(self, loss, step):
        return loss * self.by if step in self.bad else loss


pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")


@pytest.mark.parametrize("loop", ["own order", "own autocast", "two optimizers"])
@pytest.mark.parametrize("by", [math.nan, math.inf])
def test_a_poisoned_step_is_the_step_left_out_by_hand(loop, by):
    hand = Poisoned()
    hand.by = by
    records, run, events = foreign(loop, {"skip_nonfinite": {}}, hand=hand)
    losses, left_out = by_hand(loop, Hand(skip=frozenset({3})))
    assert [record.loss for record in records] == losses
    assert same(state_of(run.trained), state_of(left_out)) == ""
    assert [record.skipped for record in records] == [step == 3 for step in range(8)]
    assert [event["step"] for event in events] == [3]
    assert events[0]["message"].startswith("left the update of step 3 out: ")
    assert records[-1].metrics["skip_nonfinite/skipped"] == 1


def bad_input(buffers):
    """Return a network with BatchNorm after twelve steps, one of whose inputs held a NaN."""
    made = []

    def train(run):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        made.append(model)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        data = torch.utils.data.TensorDataset(torch.randn(96, 2))
        for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=8):
            shown = torch.full_like(x, math.nan) if run.step == 5 else x
            loss = model(shown).square().mean()
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    stabilised(train, {"skip_nonfinite": {"buffers": buffers}}, steps=12)
    return made[0]


def test_running_statistics_are_those_from_before_the_bad_step():
    healed, sick = bad_input(True), bad_input(False)
    assert torch.isfinite(torch.cat([p.flatten() for p in sick.parameters()])).all()
    assert not torch.isfinite(sick[1].running_mean).any()
    assert torch.isfinite(healed[1].running_mean).all()
    assert healed[1].num_batches_tracked == 11


def test_too_many_in_a_row_end_the_training():
    hand = Poisoned()
    hand.bad = (3, 4, 5)
    with pytest.raises(TrainingError, match=r"3 updates in a row were left out, up to step 5"):
        foreign("own order", {"skip_nonfinite": {"at_most": 2}}, hand=hand)


def test_a_nan_that_ends_a_training_does_not_any_more(saves):
    saves("skip_nonfinite")
