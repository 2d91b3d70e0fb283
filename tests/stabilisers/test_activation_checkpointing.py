"""A block that is computed again gives the same gradients, and its activations are not kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from stabexp.stabilisers import build
from stabexp.tasks.gpt import GPT, VOCABULARY


def attached(model, **given):
    stabiliser = build({"activation_checkpointing": given})["activation_checkpointing"]
    stabiliser.attach(model, [], step=0)
    return stabiliser


def passed(model, x, *, dtype=None):
    """Return loss, gradients, buffers and the bytes kept for backward."""
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    torch.manual_seed(3)
    model.zero_grad()
    with (
        saved_tensors_hooks(pack, lambda t: t),
        torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None),
    ):
        loss = model(x).float().square().mean()
    size = sum(value for key, value in kept.items() if key not in own)
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [loss.detach(), *gradients, *(b.clone() for b in model.buffers())], size


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_a_transformer_with_dropout_keeps_less_and_is_equal_to_the_bit(dtype):
    torch.manual_seed(0)
    model = GPT(width=64, heads=4, layers=6, context=64, dropout=0.2).model()
    ids = torch.randint(VOCABULARY, (4, 64))
    plain, size = passed(model, ids, dtype=dtype)
    stabiliser = attached(model)
    again, smaller = passed(model, ids, dtype=dtype)
    stabiliser.detach()
    assert equal(again, plain)
    assert smaller < size / 5
    assert equal(passed(model, ids, dtype=dtype)[0], plain)
    assert {type(block).__qualname__ for block in model.blocks} == {"Block"}
    assert "forward" not in vars(type(model.blocks[0])).get("__dict__", {})


def test_running_statistics_are_counted_once():
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)) for _ in range(3))
    )
    twin = copy.deepcopy(model)
    x = torch.randn(16, 8)
    stabiliser = attached(model)
    for _ in range(3):
        assert equal(passed(model, x)[0], passed(twin, x)[0])
    assert model[0][1].num_batches_tracked == 3
    stabiliser.detach()


def test_a_deep_copy_computes_with_its_own_weights():
    """An average of the weights is often kept as a copy of the model."""
    model = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.ReLU())])
    stabiliser = attached(model)
    average = copy.deepcopy(model)
    with torch.no_grad():
        model[0][0].weight.zero_()
        model[0][0].bias.zero_()
    x = torch.ones(1, 2, requires_grad=True)
    assert not model[0](x).any()
    assert not average[0](10 * x).equal(model[0](10 * x)) or average[0][0].weight.any()
    stabiliser.detach()


def test_what_lies_inside_a_chosen_module_is_not_computed_a_third_time():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 1))
    calls = []
    model[0][0].register_forward_hook(lambda *_: calls.append(1))
    stabiliser = attached(model, modules=["0", "0.*"])
    model(torch.ones(1, 2)).sum().backward()
    stabiliser.detach()
    assert len(calls) == 2
    with torch.no_grad():
        attached(model, modules=["0"])
        model(torch.ones(1, 2))
    assert len(calls) == 3  # without gradients nothing is computed twice
