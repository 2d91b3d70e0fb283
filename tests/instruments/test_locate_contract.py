"""What the locator promises besides being right: it changes nothing, and leaves nothing behind."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from instruments.locate_harness import IDS, Net, batch_of, train
from torch import nn

from stabexp.instruments.base import Instrument
from stabexp.instruments.locate import Locate
from stabexp.training.safe_operations import SafeOperations


class Nothing(Instrument):
    """Watches nothing."""


class Small(nn.Module):
    """Dropout, normalisation, attention and a checkpointed part."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(6, 12)
        self.norm = nn.BatchNorm1d(12)
        self.attention = nn.MultiheadAttention(12, 2, dropout=0.2)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(12, 6)

    def forward(self, x):
        h = self.drop(self.norm(self.inner(x)))
        h = torch.utils.checkpoint.checkpoint(self.mix, h, use_reentrant=False)
        return self.head(h)

    def mix(self, h):
        mask = nn.Transformer.generate_square_subsequent_mask(len(h))
        return self.drop(self.attention(h, h, h, attn_mask=mask)[0] + h).relu()


def training(instrument, kind, **options):
    torch.manual_seed(0)
    net, logged = Small(), []
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=1e-2, **options)

    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "AdamW"):
            loss = F.cross_entropy(net(batch), torch.arange(4))
        log(loss)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    found = train(step, net, steps=6, optimizer=optimizer, instrument=instrument, logged=logged)
    return found, logged, [*net.state_dict().values()], torch.get_rng_state()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("SGD", {"momentum": 0.9}), ("Adam", {"foreach": True}), ("AdamW", {"fused": True})],
)
def test_not_one_bit_of_the_training_changes(kind, options):
    _, losses, state, stream = training(Nothing(), kind, **options)
    found, watched, same, after = training(Locate(), kind, **options)
    assert found is None
    assert all(torch.equal(a, b) for a, b in zip(losses, watched, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(state, same, strict=True))
    assert torch.equal(stream, after)


def nan_step(net, optimizer, batch, log):
    optimizer.zero_grad()
    loss = (net(batch) * 0).log().mean()
    log(loss)
    loss.backward()
    optimizer.step()


def test_findings_are_json():
    found = train(nan_step, Net())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["explanation"].endswith(".")
    assert found["remedy"].endswith(".")
    assert found["inputs"] == "float32[4, 6] 0, 24 zeros"
    assert found["code"] == "loss = (net(batch) * 0).log().mean()"


def test_nothing_is_watched_before_the_first_step():
    def step(net, optimizer, batch, log):
        log((net(batch) * 0).log().mean())

    assert train(step, Net(), steps=3, instrument=Locate(first_step=3)) is None
    assert train(step, Net(), steps=3, instrument=Locate(first_step=2))["step"] == 2


def test_a_value_in_the_batch_is_named_with_its_sample():
    def batches(index):
        batch = batch_of(index)
        if index == 1:
            batch[2, 3] = math.nan
        return (batch, {"labels": torch.arange(4)})

    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch[0]), batch[1]["labels"])
        log(loss)
        loss.backward()
        optimizer.step()

    found = train(step, Net(), steps=3, batches=batches)
    assert (found["step"], found["phase"], found["reason"]) == (1, "input", "nonfinite_input")
    assert (found["sample_index"], found["sample_ids"]) == ([2], [IDS[2]])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_parameter_that_was_not_finite_before_is_named(value):
    net = Net()
    with torch.no_grad():
        net.first.weight[2, 1] = value

    def step(net, optimizer, batch, log):
        loss = net(batch).square().mean()
        log(loss)
        loss.backward()
        optimizer.step()

    found = train(step, net)
    assert (found["phase"], found["parameter"]) == ("parameter", "first.weight")
    assert found["reason"] == "nonfinite_parameter"


def test_state_of_the_optimizer_that_was_not_finite_is_named():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())

    def step(net, optimizer, batch, log):
        loss = net(batch).square().mean()
        log(loss)
        loss.backward()
        optimizer.step()

    train(step, net, optimizer=optimizer, instrument=Nothing())
    optimizer.state[net.first.bias]["exp_avg"][0] = math.nan
    found = train(step, net, optimizer=optimizer)
    assert (found["phase"], found["reason"]) == ("optimizer", "nonfinite_state")


def test_a_second_optimizer_given_as_extra_is_watched():
    critic = nn.Linear(6, 1)
    other = torch.optim.SGD(critic.parameters(), lr=0.1)

    def step(net, optimizer, batch, log):
        (critic(net(batch).detach()) * 0).sqrt().mean().backward()
        other.step()
        log(net(batch).mean())

    found = train(step, Net(), extra={"critic": critic, "other": other})
    assert (found["operation"], found["reached_name"]) == ("sqrt", "critic.weight")


def test_a_loop_that_raises_leaves_no_mode_or_hook_behind():
    def step(net, optimizer, batch, log):
        log((net(batch) * 0).log().mean())
        raise RuntimeError("stop")

    instrument, net = Locate(), Net()
    with pytest.raises(RuntimeError, match="stop"):
        train(step, net, instrument=instrument)
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert not net.first.weight._backward_hooks
    assert instrument.findings()["operation"] == "log"


def test_a_gradient_that_overflows_while_accumulating_is_found():
    def step(net, optimizer, batch, log):
        optimizer.zero_grad()
        for _ in range(2):
            loss = (net(batch * 0 + 1) * 1e38).sum() * 0.6
            loss.backward()
        log(torch.zeros(()))
        optimizer.step()

    found = train(step, Net())
    assert (found["phase"], found["reason"], found["reached"]) == (
        "backward",
        "overflow",
        "parameter",
    )


@pytest.mark.slow
def test_compiled_code_is_watched_as_it_was_written():
    class Distance(nn.Module):
        def forward(self, h):
            return (h * 0).square().sum(1).sqrt()

    net = Net(Distance())
    compiled = torch.compile(net, backend="aot_eager")

    def step(net, optimizer, batch, log):
        loss = compiled(batch).mean()
        log(loss)
        loss.backward()
        optimizer.step()

    found = train(step, net)
    assert (found["operation"], found["module"], found["phase"]) == ("sqrt", "tested", "backward")
    assert found["code"] == "return (h * 0).square().sum(1).sqrt()"


def test_an_instrument_sees_what_safe_operations_left():
    def step(net, optimizer, batch, log):
        with_zero = (net(batch) * 0).square().sum(1).sqrt().mean()
        log(with_zero)
        with_zero.backward()
        optimizer.step()

    assert train(step, Net())["operation"] == "sqrt"
    with SafeOperations(["sqrt"]):
        assert train(step, Net()) is None
