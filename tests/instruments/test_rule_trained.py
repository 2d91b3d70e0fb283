"""A training of a bias or two of a frozen network is told, and every usual way to train is not."""

from __future__ import annotations

import pytest
import torch
from instruments.test_rules_harness import classes, found, network
from torch import nn
from torch.nn import functional


def told(net, given=None):
    """Train what `given` names, or all that asks for a gradient; return what is said of it."""
    named = dict(net.named_parameters())
    trained = [named[name] for name in given] if given else list(net.parameters())

    def train(run):
        optimizer = torch.optim.SGD(trained, lr=1e-3)
        for x, y in run.steps(classes(), model=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x), y)
            run.log(loss)
            loss.backward()
            optimizer.step()

    return found(train, updates=2).get("almost_nothing_trains")


def frozen(*, but, net=None):
    net = net or network(6, 5)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name in but)
    return net


class Adapted(nn.Module):
    """A frozen matrix with a low-rank correction that is trained."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 200)
        self.down, self.up = nn.Linear(6, 1, bias=False), nn.Linear(1, 200, bias=False)
        self.head = nn.Linear(200, 5)
        for part in (self.base, self.head):
            part.requires_grad_(False)

    def forward(self, x):
        return self.head(functional.relu(self.base(x) + self.up(self.down(x))))


@pytest.mark.parametrize(
    ("net", "given"),
    [
        pytest.param(frozen(but=["3.bias"]), None, id="all but a bias is frozen"),
        pytest.param(network(6, 5), ["3.bias"], id="the optimizer was given a bias only"),
    ],
)
def test_a_bias_of_a_frozen_network_is_almost_nothing(net, given):
    finding = told(net, given)
    assert finding is not None
    assert (finding["strength"], finding["place"]) == ("suspicious", "0.weight")
    assert "1.29% of the 389 parameters are trained (3.bias)" in finding["detail"]


@pytest.mark.parametrize(
    ("net", "given"),
    [
        pytest.param(network(6, 5), None, id="everything"),
        pytest.param(frozen(but=["3.weight", "3.bias"]), None, id="a new head"),
        pytest.param(frozen(but=["3.weight"]), None, id="one matrix"),
        pytest.param(network(6, 5), ["0.weight"], id="one matrix given to the optimizer"),
        pytest.param(Adapted(), ["down.weight", "up.weight"], id="a low-rank correction"),
        pytest.param(frozen(but=["0.bias", "3.bias"]), None, id="a tenth of all, in vectors"),
    ],
)
def test_it_says_nothing_of(net, given):
    assert told(net, given) is None
