"""Each kind of layer has its own limit."""

from __future__ import annotations

import pytest
import torch
from stabilisers.stabilised import stabilised
from torch import nn

from stabexp.stabilisers import build
from stabexp.tasks.cnn import CNN
from stabexp.tasks.gpt import GPT


def gradients(model, given):
    """Return the norm of each layer's gradient, all elements of which were 1, once clipped."""
    stabiliser = build({"layer_clip": given})["layer_clip"]
    stabiliser.attach(model, [], step=0)
    parameters = list(model.parameters())
    norms = torch.tensor([p.numel() ** 0.5 for p in parameters])
    factors = stabiliser.factors(parameters, norms)
    factor = {id(p): f for p, f in zip(parameters, factors, strict=True)}
    found = {}
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if own:
            found[name] = sum((factor[id(p)] ** 2 * p.numel()).item() for p in own) ** 0.5
    return found


def test_attention_may_be_twice_as_large_as_other_layers():
    found = gradients(GPT(width=16).model(), {})
    assert {name: round(norm, 3) for name, norm in found.items()} == {
        name: 1.0 if ".attention." in name else 0.5 for name in found
    }
    assert "blocks.0.attention_norm" in found  # a norm is no attention, whatever its name


def test_only_the_convolutions_of_a_network_are_clipped():
    model = CNN(norm="batch").model()
    found = gradients(model, {"limits": {"convolution": 0.25}, "other": None})
    for name, norm in found.items():
        module = model.get_submodule(name)
        size = sum(p.numel() for p in module.parameters(recurse=False)) ** 0.5
        assert norm == pytest.approx(0.25 if isinstance(module, nn.Conv2d) else size, rel=1e-4)


@pytest.mark.parametrize(("by", "expected"), [("layer", 2**0.5), ("parameter", 2.0), ("rule", 1.0)])
def test_a_limit_holds_for_what_it_is_taken_over(by, expected):
    """Two layers of two parameters: a limit of 1 each, or for all of them together."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    found = gradients(model, {"limits": {"*": 1.0}, "by": by})
    total = sum(norm**2 for norm in found.values()) ** 0.5
    assert total == pytest.approx(expected, rel=1e-4)


def test_a_layer_without_gradient_now_and_then_is_no_trouble():
    def train(run):
        model = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.utils.data.TensorDataset(torch.ones(64, 2))
        for (x,) in run.steps(data, model=model, optimizer=optimizer, batch_size=8):
            loss = model["ab"[run.step % 2]](x).square().mean() + 3
            run.log(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    records, _, _ = stabilised(train, {"layer_clip": {"limits": {"a": 0.01}, "other": 0.02}})
    moved = [record.clip_coefficient * record.grad_norm for record in records]
    assert moved == pytest.approx([0.01, 0.02] * 4, rel=1e-3)


def test_bursts_that_throw_a_training_over_do_not_any_more(saves):
    saves("layer_clip")
