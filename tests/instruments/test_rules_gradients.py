"""Faults on the way from the logged loss to the update, and loops that do it right."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from instruments.test_rules_harness import found, network, regression
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import TensorDataset


def plain(run, *, optimizer=torch.optim.SGD, before=None, after=None, zero=True, clip=None):
    """The textbook loop, with what a case changes about it."""
    net = network()
    opt = optimizer(net.parameters(), lr=0.01)
    for number, (x, y) in enumerate(run.steps(regression(), model=net, optimizer=opt)):
        if zero and (zero is True or number % zero == 0):
            opt.zero_grad()
        loss = F.mse_loss(net(x), y)
        run.log(loss)
        (before(loss) if before else loss).backward()
        if after:
            after(net)
        if clip:
            clip_grad_norm_(net.parameters(), clip)
        opt.step()


def divide(net, by):
    for p in net.parameters():
        p.grad.div_(by)


def reassign(net, by):
    for p in net.parameters():
        p.grad = p.grad / by


def own_clip(net, limit):
    total = torch.sqrt(sum(p.grad.pow(2).sum() for p in net.parameters()))
    for p in net.parameters():
        p.grad.mul_(limit / (total + 1e-6))


def accumulating(run, *, count=4, weight=1.0, optimizer=torch.optim.SGD, split=False, per_update=0):
    net = network()
    opt = optimizer(net.parameters(), lr=0.01)
    data, size = regression(), 8 * (count if split else 1)
    for number, (x, y) in enumerate(
        run.steps(data, model=net, optimizer=opt, accumulate=count, batch_size=size)
    ):
        if not split and number % count == 0:
            opt.zero_grad()
        if split:
            opt.zero_grad()
        for part, target in zip(x.split(8), y.split(8), strict=True):
            loss = F.mse_loss(net(part), target)
            run.log(loss)
            (loss * weight).backward()
        if split or number % count == count - 1:
            if per_update:
                divide(net, per_update)
            opt.step()


def mixed(
    run, *, unscale_twice=False, clip_first=False, skip_unscale=False, scale=2.0**12, own=False
):
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    scaler = None if own else torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=4)
    for x, y in run.steps(regression(), model=net, optimizer=opt, scaler=scaler):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(net(x).float(), y)
        run.log(loss)
        (loss * scale if own else scaler.scale(loss)).backward()
        if clip_first:
            clip_grad_norm_(net.parameters(), 1.0)
        if own and not skip_unscale:
            divide(net, scale)
        if unscale_twice:
            divide(net, scale if own else scaler.get_scale())
        if not own and not skip_unscale:
            scaler.unscale_(opt)
            if unscale_twice:
                divide(net, 1.0)
        if not clip_first:
            clip_grad_norm_(net.parameters(), 10.0)
        if own or skip_unscale:
            opt.step()
        else:
            scaler.step(opt)
        if not own and not skip_unscale:
            scaler.update()


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(lambda run: plain(run, zero=False), id="never"),
        pytest.param(lambda run: plain(run, zero=False, clip=1.0), id="never, clipped"),
        pytest.param(lambda run: plain(run, zero=4, optimizer=torch.optim.Adam), id="too seldom"),
    ],
)
def test_gradients_left_from_the_update_before_are_found(train):
    assert found(train)["gradient_accumulates_over_steps"]["strength"] == "certain"


@pytest.mark.parametrize(
    ("train", "dose"),
    [
        pytest.param(
            lambda run: mixed(run, own=True, unscale_twice=True), 2.0**12, id="own scale twice"
        ),
        pytest.param(
            lambda run: plain(
                run,
                before=lambda loss: loss * 4096,
                after=lambda net: (reassign(net, 4096), reassign(net, 4096)),
            ),
            4096.0,
            id="own scale twice, new tensors",
        ),
        pytest.param(lambda run: mixed(run, unscale_twice=True), 2.0**12, id="scaler twice"),
        pytest.param(
            lambda run: mixed(run, own=True, skip_unscale=True, scale=2.0**10),
            2.0**-10,
            id="own scale never",
        ),
        pytest.param(lambda run: mixed(run, skip_unscale=True), 2.0**-12, id="scaler never"),
        pytest.param(accumulating, 0.25, id="accumulation not divided"),
        pytest.param(lambda run: accumulating(run, split=True), 0.25, id="split batch not divided"),
        pytest.param(
            lambda run: accumulating(run, weight=0.25, per_update=4), 4.0, id="divided twice"
        ),
    ],
)
def test_a_gradient_of_another_size_is_found_with_the_factor_that_mends_it(train, dose):
    finding = found(train)["gradient_scale"]
    assert finding["cure"]["variable"] == "gradient_scale"
    assert finding["cure"]["dose"] == pytest.approx(dose, rel=0.05)


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(lambda run: mixed(run, clip_first=True), id="scaler"),
        pytest.param(lambda run: mixed(run, clip_first=True, own=True), id="own scale"),
        pytest.param(
            lambda run: plain(
                run,
                before=lambda loss: loss * 1024,
                after=lambda net: (own_clip(net, 1.0), divide(net, 1024)),
            ),
            id="own clipping",
        ),
    ],
)
def test_a_clip_before_the_unscaling_is_found(train):
    findings = found(train)
    assert findings["clipped_before_unscale"]["place"].startswith("test_rules_gradients.py:")
    assert "gradient_scale" not in findings


def tokens(short=True, n=256, length=20):
    """Sequences of which many have one counted target only."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 10, (n, length), generator=g)
    y = (x + 1) % 10
    if short:
        cut = torch.rand(n, generator=g) < 0.6
        y = torch.where((torch.arange(length) > 0) & cut[:, None], torch.tensor(-100), y)
    return TensorDataset(x, y)


def language(run, loss_of, *, data=None, count=4, batch_size=1):
    net = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    group = []
    for batch in run.steps(
        data or tokens(), model=net, optimizer=opt, accumulate=count, batch_size=batch_size
    ):
        group.append(batch)
        if len(group) < count:
            run.log(torch.tensor(1.0))
            continue
        opt.zero_grad()
        total = sum(int((y != -100).sum()) for _, y in group)
        for x, y in group:
            loss = loss_of(net(x), y, total, count)
            if batch is group[-1]:
                run.log(loss)
            loss.backward()
        opt.step()
        group = []


def built_in(z, y, total, count):
    return F.cross_entropy(z.flatten(0, 1), y.flatten()) / count


def by_hand(z, y, total, count):
    summed = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum")
    return summed / (y != -100).sum() / count


def masked(z, y, total, count):
    each = F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")
    mask = (y.flatten() != -100).float()
    return (each * mask).sum() / mask.sum() / count


def gathered(z, y, total, count):
    mask = (y != -100).float()
    chosen = z.log_softmax(-1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
    return -(chosen * mask).sum() / mask.sum() / count


def right(z, y, total, count):
    return F.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="sum") / total


@pytest.mark.parametrize("loss_of", [built_in, by_hand, masked, gathered])
def test_a_mean_per_micro_batch_of_uneven_length_is_found(loss_of):
    finding = found(lambda run: language(run, loss_of))["micro_batches_weighted_wrongly"]
    assert "1 to 20 targets" in finding["detail"]


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(plain, id="plain"),
        pytest.param(lambda run: plain(run, optimizer=torch.optim.AdamW, clip=0.1), id="clipped"),
        pytest.param(
            lambda run: plain(run, after=lambda n: own_clip(n, 0.1)), id="clipped by hand"
        ),
        pytest.param(lambda run: plain(run, before=lambda loss: 0.1 * loss), id="weighted loss"),
        pytest.param(
            lambda run: plain(run, before=lambda loss: 16 * loss), id="sum over the batch"
        ),
        pytest.param(lambda run: accumulating(run, weight=0.25), id="accumulation"),
        pytest.param(lambda run: accumulating(run, weight=0.25, split=True), id="split batch"),
        pytest.param(lambda run: accumulating(run, per_update=4), id="divided at the end"),
        pytest.param(mixed, id="scaler"),
        pytest.param(lambda run: mixed(run, own=True), id="own scale"),
        pytest.param(lambda run: language(run, right), id="per token"),
        pytest.param(
            lambda run: language(run, built_in, data=tokens(short=False)), id="even lengths"
        ),
    ],
)
def test_a_loop_that_does_it_right_is_left_alone(train):
    assert found(train) == {}


def test_two_players_do_not_look_like_a_missing_zero_grad():
    def train(run):
        player, critic = network(6, 6), network()
        first = torch.optim.Adam(player.parameters(), lr=1e-3)
        second = torch.optim.Adam(critic.parameters(), lr=1e-3)
        both = nn.ModuleList([player, critic])
        for x, _ in run.steps(regression(), model=both, optimizer=second):
            second.zero_grad()
            loss = critic(player(x).detach()).mean() - critic(x).mean()
            run.log(loss)
            loss.backward()
            second.step()
            first.zero_grad()
            (-critic(player(x)).mean()).backward()
            first.step()

    assert found(train) == {}
