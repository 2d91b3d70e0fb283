"""Norms, softmax and losses do not overflow in half precision."""

from __future__ import annotations

import pytest
import torch
from interventions.foreign_loops import Hand, same
from stabilisers.stabilised import by_hand, foreign, state_of
from torch import Tensor, nn
from torch.nn import functional

from stabexp.stabilisers import build
from stabexp.tasks.gpt import GPT

BIG = torch.full((4, 8), 300.0, dtype=torch.float16) * torch.linspace(0.5, 1.5, 8).half()


class MyNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True))


class Scores(nn.Module):
    """What overflows when it is called directly, in float16."""

    def forward(self, x):
        return {
            "matmul": (x @ x.T).float().sum(),
            "exp": (x / 20).exp().float().sum(),
            "loss": functional.mse_loss(x, torch.zeros_like(x)).float(),
        }


def kept(model, **given):
    """Return what a module gives for large half-precision numbers under the stabiliser."""
    stabiliser = build({"keep_fp32": given})["keep_fp32"]
    stabiliser.attach(model, [], step=0)
    stabiliser.batch_begins(0)
    try:
        return model(BIG), stabiliser.drain_events()
    finally:
        stabiliser.batch_ends()
        stabiliser.detach()


def test_a_norm_of_its_own_is_found_by_its_class_and_computes_in_float32():
    model = nn.Sequential(nn.Identity(), MyNorm())
    assert not model(BIG).any()  # 1 / inf
    found, events = kept(model)
    assert found.dtype == torch.float16
    assert torch.equal(found, MyNorm()(BIG.float()).half())
    assert events[0]["modules"] == ["1"]


@pytest.mark.parametrize(
    ("operations", "finite"),
    [
        ([], set()),
        (["loss"], {"loss"}),
        (["matmul"], set()),  # computed in float32, but what comes out is half again
        (["exp"], set()),
    ],
)
def test_functions_are_met_on_their_way_into_torch(operations, finite):
    found, _ = kept(Scores(), modules=[], operations=operations)
    assert {name for name, value in found.items() if torch.isfinite(value)} == finite


def test_under_autocast_an_overflowing_product_stays_in_float32():
    model = Scores()
    with torch.autocast("cpu", torch.float16):
        assert torch.isinf(model(BIG)["matmul"])
        found, _ = kept(model, modules=[], operations=["matmul"])
    assert torch.isfinite(found["matmul"])


def test_auto_names_norms_and_positions_of_a_transformer():
    stabiliser = build({"keep_fp32": {}})["keep_fp32"]
    stabiliser.attach(GPT(width=8, heads=2, layers=1).model(), [], step=0)
    assert stabiliser.drain_events()[0]["modules"] == [
        "positions",
        "blocks.0.attention_norm",
        "blocks.0.network_norm",
        "norm",
    ]
    stabiliser.detach()


@pytest.mark.parametrize("loop", ["own autocast", "own scaler"])
def test_a_named_module_is_the_loop_that_leaves_autocast_there(loop):
    losses, trained = by_hand(loop, Hand(exact=True))
    given = {"keep_fp32": {"modules": ["head"], "operations": []}}
    records, run, _ = foreign(loop, given)
    assert [record.loss for record in records] == losses
    assert same(state_of(run.trained), state_of(trained)) == ""


def test_what_is_called_in_many_ways_is_one_operation():
    x = torch.linspace(0, 20, 8).half().requires_grad_()
    calls = [
        lambda: functional.softmax(x, -1),
        lambda: torch.softmax(x, -1),
        lambda: x.softmax(-1),
        lambda: nn.Softmax(-1)(x),
    ]
    exact = x.detach().float().softmax(-1).half()
    stabiliser = build({"keep_fp32": {"modules": []}})["keep_fp32"]
    stabiliser.attach(nn.Identity(), [], step=0)
    stabiliser.batch_begins(0)
    found: list[Tensor] = [call() for call in calls]
    stabiliser.batch_ends()
    stabiliser.detach()
    assert all(torch.equal(each, exact) for each in found)
    found[0].sum().backward()
    assert x.grad.dtype == torch.float16


def test_squares_that_overflow_do_not_any_more(saves):
    saves("keep_fp32")
