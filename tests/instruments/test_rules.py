"""Watching changes nothing: same losses, weights and random streams, and everything taken back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from instruments.test_rules_harness import Handle, classes
from torch import nn
from torch.nn.modules import module as hooks
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from stabexp.instruments.rules import Rules


class Net(nn.Module):
    """Dropout, BatchNorm, attention and a checkpointed block."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.3)
        self.block = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2))
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        h = self.drop(self.norm(self.inner(x)))
        h = h + checkpoint(self.block, h, use_reentrant=False)
        h = h + F.scaled_dot_product_attention(h[None], h[None], h[None], dropout_p=0.1)[0]
        return self.out(h)


def train(run, *, precision=None, accumulate=1):
    torch.manual_seed(3)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if precision else None
    data = run.steps(classes(), model=net, optimizer=opt, accumulate=accumulate, scaler=scaler)
    for number, (x, y) in enumerate(data):
        with torch.autocast("cpu", dtype=torch.float16, enabled=precision is not None):
            loss = F.cross_entropy(net(x).float(), y)
        run.log(loss)
        (scaler.scale(loss) if scaler else loss).div(accumulate).backward()
        if number % accumulate == accumulate - 1:
            if scaler:
                scaler.unscale_(opt)
            clip_grad_norm_(net.parameters(), 1.0)
            if scaler:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
            opt.zero_grad()
    return net


@pytest.mark.parametrize(
    "options",
    [{}, {"precision": "fp16"}, {"accumulate": 3}],
    ids=["plain", "mixed precision", "accumulation"],
)
def test_a_watched_training_is_the_same_bit_for_bit(options):
    bare = Handle(None, updates=8)
    expected = train(bare, **options)
    stream = torch.get_rng_state()
    rules = Rules()
    watched = Handle(rules, updates=8)
    net = train(watched, **options)
    assert rules.failures == {}
    assert rules.findings() == []
    assert watched.losses == bare.losses
    assert torch.equal(torch.get_rng_state(), stream)
    for one, other in zip(net.state_dict().values(), expected.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_everything_is_taken_back_even_when_the_training_raises():
    inner = torch.autograd.backward
    counts = len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)

    def broken(run):
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in run.steps(classes(), model=net, optimizer=opt):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken(Handle(Rules()))
    assert torch.autograd.backward is inner
    assert (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)) == counts
    assert torch.overrides._get_current_function_mode_stack() == []


def test_a_rule_that_fails_is_left_out_and_named():
    rules = Rules()
    handle = Handle(rules, updates=3)

    def run(handle):
        net = nn.Linear(6, 5)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for number, (x, y) in enumerate(handle.steps(classes(), model=net, optimizer=opt)):
            if number == 0:
                (rule,) = [r for r in rules._watch.rules if r.slug == "double_softmax"]
                rule.called = lambda call: 1 / 0
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            handle.log(loss)
            loss.backward()
            opt.step()

    run(handle)
    assert rules.failures == {"double_softmax": "called: ZeroDivisionError: division by zero"}
    assert rules.findings() == []
