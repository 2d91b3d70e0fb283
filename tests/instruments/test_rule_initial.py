"""A first loss far above that of guessing is told, with the weight that explains it if one does."""

from __future__ import annotations

import re

import pytest
import torch
from instruments.test_rules_harness import classes, found, network
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from stabexp.instruments import rule_initial
from stabexp.training import changes


def train(run, *, net=None, data=None, loss_of=functional.cross_entropy):
    """Train the textbook loop; its network scores five classes."""
    net = net or network(6, 5)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for x, y in run.steps(data or classes(), model=net, optimizer=optimizer):
        optimizer.zero_grad()
        loss = loss_of(net(x), y)
        run.log(loss)
        loss.backward()
        optimizer.step()


def told(*, net=None, first=0, updates=3, **options):
    findings = found(lambda run: train(run, net=net, **options), updates=updates, first=first)
    return findings.get("initial_loss")


def widened(factor, *, name="3.weight", net=None):
    torch.manual_seed(0)
    net = net or network(6, 5)
    with torch.no_grad():
        dict(net.named_parameters())[name].mul_(factor)
    return net


def summed(logits, y):
    return functional.cross_entropy(logits, y, reduction="sum") / 1e3


def weighted(logits, y):
    return functional.cross_entropy(logits, y, weight=torch.ones(5))


class Embedded(nn.Module):
    """An embedding that is also the output matrix, as language models have it."""

    def __init__(self, deviation):
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        nn.init.normal_(self.embedding.weight, std=deviation)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        return functional.linear(hidden, self.embedding.weight)


def test_the_weight_that_is_too_wide_is_named_with_how_much():
    finding = told(net=widened(100.0))
    assert finding is not None
    assert (finding["strength"], finding["place"], finding["step"]) == ("certain", "3.weight", 0)
    assert "guessing among 5 classes scores 1.609" in finding["detail"]
    assert re.search(r"3\.weight is 5\d\.\d times as wide", finding["detail"])


def test_with_that_weight_of_the_usual_width_the_first_loss_is_as_it_should_be():
    net = widened(100.0)
    changes.narrow_weights(net)
    assert told(net=net) is None


def test_a_wide_kernel_is_measured_by_all_that_goes_into_one_output():
    net = nn.Sequential(
        nn.Unflatten(1, (6, 1, 1)),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    finding = told(net=widened(400.0, name="1.weight", net=net))
    assert finding is not None
    assert finding["place"] == "1.weight"


@pytest.mark.parametrize(("deviation", "wild"), [(1.0, True), (0.02, False)])
def test_a_tied_embedding_is_told_when_it_has_the_width_of_a_usual_one(deviation, wild):
    tokens = torch.arange(512) % 50
    data = TensorDataset(tokens, tokens.roll(1))
    finding = told(net=Embedded(deviation), data=data)
    assert (finding is not None) == wild
    if finding is not None:
        assert finding["place"] == "embedding.weight"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="usual weights"),
        pytest.param({"net": widened(100.0), "loss_of": summed}, id="a sum over the batch"),
        pytest.param({"net": widened(100.0), "loss_of": weighted}, id="classes that weigh more"),
        pytest.param({"net": widened(100.0), "first": 4}, id="a replay from a later checkpoint"),
    ],
)
def test_it_says_nothing_of(options):
    assert told(**options) is None


def test_where_no_weight_is_too_wide_none_is_accused():
    x, y = classes().tensors
    finding = told(data=TensorDataset(300 * x, y))
    assert finding is not None
    assert finding["strength"] == "suspicious"
    assert finding["place"].startswith("test_rule_initial.py:")
    assert "no weight matrix is wider than usual" in finding["detail"]


def test_a_model_with_a_single_number_for_a_weight_is_no_trouble():
    data = TensorDataset(torch.randn(64, 1), torch.arange(64) % 2)
    assert told(net=nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2)), data=data) is None


def test_the_rule_and_the_cure_mean_the_same_by_too_wide():
    assert rule_initial.TOO_WIDE == changes.TOO_WIDE
