"""All modules are named, and those whose half-precision numbers came near their end."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stabexp.instruments import Watched, build


class Net(nn.Module):
    """Two layers and a norm that answers with a tuple, as attention does."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU())
        self.pair = Pair()
        nn.init.eye_(self.body[0].weight)

    def forward(self, x):
        return self.pair(self.body(x))


class Pair(nn.Module):
    def forward(self, x):
        return x, {"unwatched": x}


def seen(*values, dtype=torch.float16, near=None):
    """Return what is found in forward passes of these values."""
    net = Net()
    instrument = build({"half_modules": {} if near is None else {"near": near}})["half_modules"]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    instrument.attach(Watched(model=net, optimizer=optimizer))
    for value in values:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
            net(torch.full((2, 4), float(value)))
    instrument.detach()
    assert not any(module._forward_hooks for module in net.modules())
    return instrument.findings()


LEAVES = ["body.0", "body.1", "pair"]


def test_every_module_is_named_in_order_whatever_it_holds():
    assert seen(1.0)["names"] == ["", "body", "body.0", "body.1", "pair"]


@pytest.mark.parametrize(
    ("values", "options", "near"),
    [
        pytest.param([1.0, 2.0], {}, [], id="small numbers"),
        pytest.param([1.0, 3e4, 1.0], {}, LEAVES, id="near the largest once"),
        pytest.param([1e5], {}, LEAVES, id="beyond it"),
        pytest.param([float("nan")], {}, LEAVES, id="lost already"),
        pytest.param([-3e4], {}, ["body.0"], id="before what takes it away"),
        pytest.param([3e4], {"dtype": torch.float32}, [], id="in float32"),
        pytest.param([3e4], {"dtype": torch.bfloat16}, LEAVES, id="in bfloat16"),
        pytest.param([10.0], {"near": 5.0}, LEAVES, id="a nearer limit"),
    ],
)
def test_a_module_is_suspected_when_its_numbers_came_near_the_end(values, options, near):
    assert seen(*values, **options)["near"] == near


def test_nothing_is_remembered_after_it_was_taken_back():
    net = Net()
    instrument = build({"half_modules": {}})["half_modules"]
    instrument.attach(Watched(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1)))
    instrument.detach()
    with torch.autocast("cpu", dtype=torch.float16):
        net(torch.full((2, 4), 1e5))
    assert instrument.findings()["near"] == []
