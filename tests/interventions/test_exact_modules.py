"""Exact modules are the same model with those modules' calls written out in float32."""

from __future__ import annotations

import copy

import pytest
import torch
from interventions.hand_written import Net, assert_same_bits, course, differ, parts
from torch import nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from stabexp.errors import ConfigError
from stabexp.interventions import build
from stabexp.training.changes import Changes


class HeadWritten(Net):
    """The head as one writes it by hand under autocast."""

    def forward(self, x):
        hidden = self.norm(self.encoder(x))
        with torch.autocast("cpu", enabled=False):
            return self.head(hidden.float())


class AllWritten(Net):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


class InnerWritten(Net):
    def forward(self, x):
        first, tanh, second = self.encoder
        with torch.autocast("cpu", enabled=False):
            hidden = first(x.float())
        return self.head(self.norm(second(tanh(hidden))))


def with_model(kind):
    def make(optimizer, *, tensor_rate=False):
        torch.manual_seed(3)
        return parts(optimizer, model=kind())

    return make


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (HeadWritten, "head"),
        (AllWritten, "*"),
        (AllWritten, "encoder,norm,head,encoder.0"),
        (InnerWritten, "encoder.0"),
    ],
)
def test_under_autocast_it_is_the_call_written_out(half, kind, names):
    how = {"autocast": half, "scaled": half == torch.float16}
    written_out = course("adamw", make=with_model(kind), **how)
    changed = course("adamw", interventions={"exact_modules": names}, **how)
    assert_same_bits(written_out, changed)
    assert differ(written_out, course("adamw", **how))


@pytest.mark.parametrize("names", ["head", "*", "encoder.0,norm"])
def test_in_float32_training_nothing_changes(names):
    assert_same_bits(course("adam"), course("adam", interventions={"exact_modules": names}))


class PureHead(nn.Module):
    """Weights in half; the head is written out when asked."""

    def __init__(self, written_out):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        self.written_out = written_out

    def forward(self, ids):
        hidden = self.norm(self.rnn(self.embed(ids))[0][:, -1])
        if not self.written_out:
            return self.head(hidden)
        first, tanh, last = self.head
        wide = tanh(linear(hidden.float(), first.weight.float(), first.bias.float()))
        wide = linear(wide, last.weight.float(), last.bias.float())
        return wide.to(hidden.dtype)


def pure(half, *, written_out=False, names=None):
    """Train three steps in a pure half format; return every weight and buffer."""
    torch.manual_seed(0)
    model = PureHead(written_out).to(half)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    changes = Changes(build({"exact_modules": names} if names else {}))
    changes.begin(model, optimizer, scratch=True)
    dtypes = []
    for _ in range(3):
        result = model(torch.arange(12).reshape(4, 3) % 9)
        dtypes.append(result.dtype)
        nn.functional.cross_entropy(result.float(), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        optimizer.zero_grad()
    changes.end()
    assert set(dtypes) == {half}
    assert all(isinstance(weight, nn.Parameter) for weight in model.rnn._flat_weights)
    assert all(isinstance(p, nn.Parameter) and p.dtype == half for p in model.parameters())
    return {name: value.float() for name, value in model.state_dict().items()}


def test_half_weights_are_widened_for_the_call_and_the_result_goes_back():
    written_out = pure(torch.bfloat16, written_out=True)
    changed = pure(torch.bfloat16, names="head")
    assert all(torch.equal(written_out[name], changed[name]) for name in written_out)
    control = pure(torch.bfloat16)
    assert any(not torch.equal(control[name], changed[name]) for name in control)


@pytest.mark.parametrize("names", ["rnn", "norm", "embed", "*", "rnn,norm,head"])
def test_recurrent_normalising_and_embedding_modules_can_be_exact(names):
    control = pure(torch.bfloat16)
    changed = pure(torch.bfloat16, names=names)
    assert all(value.isfinite().all() for value in changed.values())
    close = [torch.allclose(control[name], changed[name], atol=0.05) for name in control]
    assert all(close)
    assert not torch.equal(changed["norm.running_var"], torch.ones(8))


def test_a_result_too_large_for_float16_is_kept():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    nn.init.constant_(model[0].weight, 1e5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.rand(2, 4)

    def result():
        with torch.autocast("cpu", torch.float16):
            return model[0](inputs)

    assert not result().isfinite().all()
    changes = Changes(build({"exact_modules": "0"}))
    changes.begin(model, optimizer, scratch=True)
    assert result().isfinite().all()
    changes.end()
    assert not result().isfinite().all()


def test_a_list_of_blocks_that_is_never_called_stands_for_its_blocks():
    blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model = nn.ModuleDict({"blocks": blocks, "head": nn.Linear(4, 2)})
    changes = Changes(build({"exact_modules": "blocks"}))
    changes.begin(model, torch.optim.SGD(model.parameters(), 0.1), scratch=True)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = blocks[1](blocks[0](torch.ones(2, 4)))
        result = model["head"](hidden)
    changes.end()
    assert (hidden.dtype, result.dtype) == (torch.float32, torch.bfloat16)


def test_a_hook_of_the_loops_own_sees_what_the_next_module_gets():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).bfloat16()
    seen = []
    model[0].register_forward_hook(lambda module, args, result: seen.append(result.dtype))
    changes = Changes(build({"exact_modules": "0"}))
    changes.begin(model, torch.optim.SGD(model.parameters(), 0.1), scratch=True)
    model(torch.ones(2, 4, dtype=torch.bfloat16))
    changes.end()
    assert seen == [torch.bfloat16]


def test_a_copy_made_by_the_loop_computes_with_its_own_weights():
    model = Net()
    changes = Changes(build({"exact_modules": "head"}))
    changes.begin(model, torch.optim.SGD(model.parameters(), 0.1), scratch=True)
    average = copy.deepcopy(model)
    with torch.no_grad():
        average.head.bias.fill_(100.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert average(torch.zeros(1, 6)).min() > 50
        assert average(torch.zeros(1, 6)).dtype == torch.float32
    changes.end()


def test_after_an_exception_and_inside_a_recomputed_block_autocast_is_as_before():
    class Fussy(nn.Module):
        def forward(self, x):
            if x.shape[0] == 3:
                raise ArithmeticError("three")
            return x * 2

    model = nn.Sequential(nn.Linear(4, 4), Fussy())
    changes = Changes(build({"exact_modules": "0,1"}))
    changes.begin(model, torch.optim.SGD(model.parameters(), 0.1), scratch=True)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ArithmeticError):
            model(torch.ones(3, 4))
        assert torch.is_autocast_enabled("cpu")
        result = checkpoint(model, torch.ones(2, 4), use_reentrant=False)
        assert result.dtype == torch.float32
    result.sum().backward()
    assert torch.equal(model[0].bias.grad, torch.full((4,), 4.0))
    assert not torch.is_autocast_enabled("cpu")
    changes.end()
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"no module 'encoder\.9'; did you mean 'encoder"):
        course(interventions={"exact_modules": "encoder.9"})
