"""The loss is finite where the logits are, and its gradient is alive where the model is wrong."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import stabexp
from stabexp.stabilisers import build


def gradient_of(loss_of, logits):
    """Return a loss and the gradient of its first logit."""
    x = torch.tensor([logits], requires_grad=True)
    loss = loss_of(x)
    loss.backward()
    return loss.item(), x.grad[0, 0].item()


@pytest.mark.parametrize(
    ("repair", "loss", "gradient"),
    [
        pytest.param(torch.log, math.inf, math.nan, id="none"),
        pytest.param(lambda p: torch.log(p + 1e-8), 18.42, 0.0, id="ε inside the log"),
        pytest.param(lambda p: torch.log(p).clamp(min=-100), 100.0, math.nan, id="clamped log"),
        pytest.param(lambda p: torch.log(p.clamp(min=1e-8)), 18.42, 0.0, id="clamped p"),
    ],
)
def test_the_usual_repairs_leave_no_gradient_where_the_safe_form_has_all_of_it(
    repair, loss, gradient
):
    """The right class is the first one, and its logit lies 200 below the other's."""
    logits = [0.0, 200.0]
    found = gradient_of(lambda x: -repair(x.softmax(-1))[0, 0], logits)
    assert found == pytest.approx((loss, gradient), rel=1e-3, nan_ok=True)
    safe = gradient_of(lambda x: stabexp.safe_cross_entropy(x, torch.tensor([0])), logits)
    assert safe == (200.0, -1.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_is_torch_to_the_bit_where_torch_is_right(smoothing, reduction, weighted):
    torch.manual_seed(0)
    logits, targets = torch.randn(6, 4), torch.tensor([0, 1, -100, 3, 2, 0])
    given = {"label_smoothing": smoothing, "reduction": reduction}
    given["weight"] = torch.tensor([1.0, 2.0, 0.5, 1.0]) if weighted else None
    results = []
    for function in (stabexp.safe_cross_entropy, functional.cross_entropy):
        x = logits.clone().requires_grad_()
        loss = function(x, targets, **given)
        loss.sum().backward()
        results.append((loss.detach(), x.grad))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_no_target_at_all_is_a_loss_of_zero_without_a_gradient():
    none = torch.tensor([-100])
    assert math.isnan(gradient_of(lambda x: functional.cross_entropy(x, none), [1.0, 2.0])[0])
    safe = gradient_of(lambda x: stabexp.safe_cross_entropy(x, none), [1.0, 2.0])
    assert safe == (0.0, 0.0)


def test_half_logits_are_widened_and_a_temperature_divides_them():
    logits = torch.tensor([[0.0, 60000.0]], dtype=torch.float16)
    loss = stabexp.safe_cross_entropy(logits, torch.tensor([0]), temperature=1.25)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(60000 / 1.25)
    soft = torch.tensor([[1.0, 0.0]], dtype=torch.float16)
    assert stabexp.safe_cross_entropy(logits, soft).item() == pytest.approx(60000)
    with pytest.raises(ValueError, match="temperature: expected a number above 0, found 0"):
        stabexp.safe_cross_entropy(logits, torch.tensor([0]), temperature=0)


def rewritten(loss_of, logits):
    """Return loss and gradient of a loss written out, under the stabiliser, and what it told."""
    stabiliser = build({"safe_cross_entropy": {}})["safe_cross_entropy"]
    stabiliser.attach(nn.Identity(), [], step=0)
    stabiliser.batch_begins(0)
    try:
        found = gradient_of(loss_of, logits)
    finally:
        stabiliser.batch_ends()
        stabiliser.detach()
    return found, bool(stabiliser.drain_events())


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda x: -torch.log(torch.softmax(x, dim=1))[0, 0],
        lambda x: -x.softmax(-1).log()[0, 0],
        lambda x: -torch.log(functional.softmax(x, dim=-1) + 1e-8)[0, 0],
        lambda x: -torch.log(x.softmax(-1).clamp(1e-7, 1 - 1e-7))[0, 0],
        lambda x: -torch.log(x.softmax(-1)[torch.arange(1), torch.tensor([0])]).mean(),
        lambda x: -x.softmax(-1).gather(1, torch.tensor([[0]])).log().mean(),
        lambda x: -(1e-9 + x.softmax(-1)[:, 0]).log().mean(),
    ],
)
def test_a_loss_that_is_written_out_is_computed_in_the_safe_form(loss_of):
    assert rewritten(loss_of, [0.0, 200.0]) == ((200.0, -1.0), True)


@pytest.mark.parametrize(
    "loss_of",
    [
        pytest.param(lambda x: -(x.softmax(-1) * 0.5).log().sum(), id="scaled"),
        pytest.param(lambda x: -(x.softmax(-1) + 0.5).log().sum(), id="shifted by much"),
        pytest.param(
            lambda x: (x.softmax(-1).detach().square_().log() * x).sum(), id="changed in place"
        ),
        pytest.param(lambda x: -x.sigmoid().log().sum(), id="no softmax"),
    ],
)
def test_any_other_logarithm_stays_what_it_is(loss_of):
    logits = [0.5, 1.5]
    assert rewritten(loss_of, logits) == (gradient_of(loss_of, logits), False)


def test_losses_that_end_a_training_do_not_any_more(saves):
    saves("safe_cross_entropy")
