"""A clamped loss is `torch.clamp` in the loop, bit for bit; where it cannot act it is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stabexp.errors import NotReplayableError
from stabexp.interventions import build
from stabexp.training import Run, RunSettings
from stabexp.training.changes_loss import LossClamp


@pytest.mark.parametrize("value", [-1.0, 4.9, 5.0, 5.1, 1e30, float("inf"), float("nan")])
@pytest.mark.parametrize("gradient", [1.0, -2.5, 65536.0, 1 / 3, 0.0])
def test_the_gradient_is_that_of_torch_clamp(value, gradient):
    found = []
    for by_hand in (True, False):
        source = torch.tensor(value, requires_grad=True)
        loss = source * 1.0
        if by_hand:
            torch.clamp(loss, max=5.0).backward(torch.tensor(gradient))
        else:
            LossClamp(5.0).watch(loss)
            loss.backward(torch.tensor(gradient))
        found.append(source.grad.view(torch.int32).item())
    assert found[0] == found[1]


def train(body, dose):
    """Run a loop with these lines in it; return the records."""
    torch.manual_seed(0)
    inputs = torch.randn(24, 5)
    inputs[9] = 40.0  # one batch of four with a loss far above the others
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    records = []
    run = Run(
        RunSettings(name="clamp", steps=6, batch_size=4, detectors={"non_finite": None}),
        interventions=build({"loss_clamp": dose}),
        on_step=records.append,
    )
    try:
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        for x, y in run.steps(data, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            body(run, (model(x) - y).square().mean())
            optimizer.step()
    finally:
        run.close()
    return records


def plain(run, loss):
    run.log(loss)
    loss.backward()


def divided_in_place(run, loss):
    run.log(loss)
    loss /= 2
    loss.backward()


@pytest.mark.parametrize("body", [plain, divided_in_place])
def test_the_record_keeps_the_true_loss_and_shows_no_gradient(body):
    records = train(body, 50.0)
    (wild,) = [record for record in records if record.loss > 50.0]
    assert wild.loss > 500.0
    assert wild.grad_norm == wild.update_ratio == 0.0
    assert all(record.grad_norm > 0 for record in records if record is not wild)


def detached(run, loss):
    run.log(loss.detach())
    loss.backward()


def too_late(run, loss):
    loss.backward()
    run.log(loss)


def another_tensor(run, loss):
    run.log(loss * 1.0)
    loss.backward()


@pytest.mark.parametrize("body", [detached, too_late, another_tensor])
def test_a_loss_that_the_gradient_does_not_come_through_is_refused(body):
    with pytest.raises(
        NotReplayableError, match=r"loss_clamp: no gradient came through the tensor"
    ):
        train(body, 50.0)
