"""A loss above the limit pulls no harder than one at the limit."""

from __future__ import annotations

import math

import pytest
import torch
from stabilisers.stabilised import stabilised

from stabexp.errors import TrainingError
from stabexp.stabilisers import build


def gradient(value, *, form="soft", limit=100.0):
    """Return d(clamped)/d(loss) at a value, and how many were clamped."""
    stabiliser = build({"loss_clamp": {"form": form, "limit": limit}})["loss_clamp"]
    x = torch.tensor(value, requires_grad=True)
    loss = x * 1
    stabiliser.logged(loss)
    (loss / 2).backward()
    return x.grad.item() * 2, stabiliser.measured()["loss_clamp/clamped"].item()


@pytest.mark.parametrize(
    ("value", "soft", "hard", "clamped"),
    [
        (99.0, 1.0, 1.0, 0),
        (100.0, 1.0, 1.0, 0),
        (400.0, 0.25, 0.0, 1),
        (math.inf, 0.0, 0.0, 1),
        (math.nan, 0.0, 0.0, 1),
    ],
)
def test_the_gradient_is_bounded_and_the_clamped_are_counted(value, soft, hard, clamped):
    assert gradient(value) == (soft, clamped)
    assert gradient(value, form="hard") == (hard, clamped)


def test_a_model_whose_every_loss_is_too_high_learns_only_with_the_soft_form():
    def train(run):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        data = torch.utils.data.TensorDataset(torch.ones(800, 1))
        for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=8):
            loss = (model(x) - 50).square().mean()
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    ends = {}
    for form in ("soft", "hard"):
        records, _, _ = stabilised(train, {"loss_clamp": {"form": form}}, steps=100)
        ends[form] = records[-1].loss / records[0].loss
    assert ends["hard"] == 1.0
    assert ends["soft"] < 0.995


def test_a_loss_that_nothing_comes_back_through_is_an_error():
    def train(run):
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        data = torch.utils.data.TensorDataset(torch.ones(64, 1))
        for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=8):
            loss = model(x).square().mean()
            loss.backward()
            run.log(loss.detach())
            optimizer.step()

    with pytest.raises(TrainingError, match=r"call run\.log\(loss\) before loss\.backward\(\)"):
        stabilised(train, {"loss_clamp": {}})


def test_an_outlier_that_throws_a_training_over_does_not_any_more(saves):
    saves("loss_clamp")
