"""Faults of parameters, buffers, optimizer state and schedule, and healthy twins."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from instruments.test_rules_harness import classes, found, network, regression
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, SequentialLR, StepLR


class Adam(torch.optim.Optimizer):
    """Adam whose last operation is lost for a parameter that is not contiguous."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                out = p if p.is_contiguous() else p.contiguous()
                out.addcdiv_(state["m"], state["v"].sqrt() + 1e-8, value=-group["lr"])


def loop(run, net, opt, *, loss_of=None, at=None, scheduler=None, after=None, **kwargs):
    """The textbook loop; `at` maps an update's number to what is done after it."""
    data = kwargs.pop("data", None) or regression()
    loss_of = loss_of or (lambda net, x, y: F.mse_loss(net(x), y))
    batches = run.steps(data, model=net, optimizer=opt, scheduler=scheduler, **kwargs)
    for number, (x, y) in enumerate(batches):
        opt.zero_grad()
        loss = loss_of(net, x, y)
        run.log(loss)
        loss.backward()
        opt.step()
        if after:
            after(number)
        if at and number in at:
            at[number]()


def tied_by_transpose(run):
    enc, dec = nn.Linear(6, 3, bias=False), nn.Linear(3, 6)
    enc.weight = nn.Parameter(dec.weight.detach().clone().t())
    net = nn.Sequential(enc, nn.ReLU(), dec)
    loop(run, net, Adam(net.parameters(), 3e-3), loss_of=lambda n, x, y: F.mse_loss(n(x), x))


def written_to_a_copy(run):
    net = network()

    class Copying(torch.optim.SGD):
        def step(self, closure=None):
            kept = net[0].weight.detach().clone()
            super().step()
            with torch.no_grad():
                net[0].weight.copy_(kept)

    loop(run, net, Copying(net.parameters(), lr=0.01))


def layer_replaced(run):
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    net[3] = nn.Linear(32, 1)
    loop(run, net, opt)


def layer_left_out(run):
    net = network()
    loop(run, net, torch.optim.SGD(net[0].parameters(), lr=0.01))


def pure_half(run):
    net = network().to(torch.bfloat16)
    opt = torch.optim.SGD(net.parameters(), lr=1e-5)
    loop(run, net, opt, loss_of=lambda n, x, y: F.mse_loss(n(x.bfloat16()).float(), y))


def detached(run):
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    loop(run, net, opt, loss_of=lambda n, x, y: F.mse_loss(n[3](n[0](x).detach().relu()), y))


@pytest.mark.parametrize(
    ("train", "place", "strength"),
    [
        pytest.param(tied_by_transpose, "0.weight", "certain", id="not contiguous"),
        pytest.param(written_to_a_copy, "0.weight", "certain", id="put back"),
        pytest.param(layer_replaced, "3.weight", "certain", id="layer replaced"),
        pytest.param(layer_left_out, "3.weight", "suspicious", id="layer left out"),
        pytest.param(pure_half, "0.weight", "suspicious", id="rounded away"),
        pytest.param(detached, "0.weight", "suspicious", id="detached"),
    ],
)
def test_a_parameter_that_is_not_trained_is_found(train, place, strength):
    finding = found(train)["parameter_never_moves"]
    assert (finding["place"], finding["strength"]) == (place, strength)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e12])
def test_a_parameter_that_was_never_written_is_found(value):
    def train(run):
        net = network()
        with torch.no_grad():
            net[0].bias[3] = value
        loop(run, net, torch.optim.SGD(net.parameters(), lr=1e-9))

    assert found(train, updates=2)["parameter_not_initialised"]["place"] == "0.bias"
    assert "parameter_not_initialised" not in found(train, updates=2, first=40)


def normed(run, *, spoil):
    net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        net[0].weight.mul_(2000)
        if spoil == "dtype":
            net[1].running_var = net[1].running_var.half()
            net[1].running_mean = net[1].running_mean.half()

    def loss_of(net, x, y):
        if spoil == "rounding":
            net[1].running_var.data = net[1].running_var.half().float()
        if spoil == "dtype":
            z = net[0](x)
            with torch.no_grad():
                net[1].running_var.mul_(0.9).add_(0.1 * z.var(0).clamp(max=6e4).half())
            return F.mse_loss(net[3](torch.relu((z - z.mean(0)) / z.std(0))), y)
        return F.mse_loss(net(x), y)

    loop(run, net, torch.optim.Adam(net.parameters(), lr=1e-3), loss_of=loss_of)


def test_running_statistics_beyond_their_range_are_found():
    finding = found(lambda run: normed(run, spoil="rounding"))["buffer_not_finite"]
    assert finding["place"] == "1.running_var"
    assert finding["cure"] == {"variable": "precision", "dose": "fp32"}
    assert "statistics_in_half" in found(lambda run: normed(run, spoil="dtype"), updates=12)
    assert found(lambda run: normed(run, spoil=None)) == {}


def emptied(run):
    net = network()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loop(run, net, opt, at={2: opt.state.clear})


def fresh_state_loaded(run):
    net = network()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    fresh = torch.optim.Adam(net.parameters(), lr=1e-3).state_dict()
    loop(run, net, opt, at={3: lambda: opt.load_state_dict(fresh)})


def moments_damaged(run):
    net = network()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    loop(run, net, opt, at={3: lambda: opt.state[net[3].bias]["exp_avg_sq"].mul_(1e-4)})


def momentum_dropped(run):
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    loop(run, net, opt, at={2: opt.state[net[0].weight].clear})


@pytest.mark.parametrize("train", [emptied, fresh_state_loaded, moments_damaged, momentum_dropped])
def test_optimizer_state_that_changes_between_updates_is_found(train):
    finding = found(train)["state_changed_between_steps"]
    assert finding["strength"] == "certain"
    assert finding["cure"] == {"variable": "optimizer_state", "dose": "kept"}


def test_a_replay_that_starts_without_moments_is_found():
    def train(run, kind):
        net = network()
        loop(run, net, kind(net.parameters(), lr=1e-3))

    later = found(lambda run: train(run, torch.optim.Adam), first=50)
    assert later["state_changed_between_steps"]["step"] == 50
    assert found(lambda run: train(run, torch.optim.Adam)) == {}
    assert found(lambda run: train(run, torch.optim.SGD), first=50) == {}
    # The scaler left out every update before it: there never was a state.
    adam = found(lambda run: train(run, torch.optim.Adam), first=50, earlier_updates=0)
    assert adam == {}


def test_a_weight_written_once_is_suspicious_and_one_written_always_is_the_method():
    def once(run):
        net = network()
        spoil = lambda: net[0].weight.data[0, 0].add_(1.0)  # noqa: E731
        loop(run, net, torch.optim.SGD(net.parameters(), lr=0.01), at={3: spoil})

    def always(run):
        net = network()
        clip = lambda _: [p.data.clamp_(-0.1, 0.1) for p in net.parameters()]  # noqa: E731
        loop(run, net, torch.optim.RMSprop(net.parameters(), lr=0.01), after=clip)

    assert found(once, updates=8)["state_changed_between_steps"]["strength"] == "suspicious"
    assert found(always, updates=8) == {}


def scheduled(run, make, *, each=1, every=1, rate=3e-3):
    net = network(6, 5)
    opt = torch.optim.Adam(net.parameters(), lr=rate)
    scheduler = make(opt)

    def after(number):
        if number % every == every - 1:
            for _ in range(each):
                scheduler.step()

    loop(
        run,
        net,
        opt,
        loss_of=lambda n, x, y: F.cross_entropy(n(x), y),
        data=classes(),
        scheduler=scheduler,
        after=after,
    )


def test_a_schedule_stepped_more_than_once_per_update_is_found():
    finding = found(lambda run: scheduled(run, lambda o: StepLR(o, 1000), each=4))
    assert "4 times" in finding["schedule_on_wrong_clock"]["detail"]


def test_a_rate_that_is_gone_early_is_found_with_and_without_the_plan():
    train = lambda run: scheduled(run, lambda o: StepLR(o, 4, gamma=0.1))  # noqa: E731
    assert found(train, updates=22, planned_steps=400)["schedule_on_wrong_clock"]["cure"] == {
        "variable": "hold_rate",
        "dose": "on",
    }
    assert found(train, updates=22)["schedule_on_wrong_clock"]["strength"] == "suspicious"
    earlier = tuple(3e-3 * 0.1 ** (k // 4) for k in range(30))
    low = lambda run: scheduled(run, lambda o: StepLR(o, 1000), rate=3e-6)  # noqa: E731
    late = found(low, updates=3, first=30, planned_steps=400, earlier_rates=earlier)
    assert late["schedule_on_wrong_clock"]["step"] == 12


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda o: CosineAnnealingLR(o, 20), id="cosine"),
        pytest.param(lambda o: OneCycleLR(o, 3e-3, total_steps=40), id="one cycle"),
        pytest.param(lambda o: StepLR(o, 4, gamma=0.5), id="steps"),
        pytest.param(
            lambda o: SequentialLR(
                o,
                [torch.optim.lr_scheduler.LinearLR(o, 0.001, 1.0, 5), CosineAnnealingLR(o, 15)],
                [5],
            ),
            id="warmup",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_a_schedule_on_the_right_clock_is_left_alone(make):
    assert found(lambda run: scheduled(run, make), updates=20, planned_steps=20) == {}


def head_only(run):
    net = network()
    loop(run, net, torch.optim.Adam(net[3].parameters(), lr=0.01))


def frozen(run):
    net = network()
    net[0].requires_grad_(False)
    loop(run, net, torch.optim.Adam(net.parameters(), lr=0.01))


def tiny_rate(run):
    net = network()
    with torch.no_grad():
        net[0].weight.add_(100.0)
    loop(run, net, torch.optim.SGD(net.parameters(), lr=1e-10))


def state_reloaded(run):
    net = network()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    loop(run, net, opt, at={2: lambda: opt.load_state_dict(opt.state_dict())})


def averaged(run):
    net = network()
    mean = [p.detach().clone() for p in net.parameters()]

    def after(number):
        for kept, p in zip(mean, net.parameters(), strict=True):
            kept.lerp_(p.detach(), 0.1)

    loop(run, net, torch.optim.Adam(net.parameters(), lr=0.01), after=after)


def fused(run):
    net = network(dropout=0.1)
    loop(run, net, torch.optim.AdamW(net.parameters(), lr=0.01, fused=True))


@pytest.mark.parametrize("train", [head_only, frozen, tiny_rate, state_reloaded, averaged, fused])
def test_a_healthy_training_is_left_alone(train):
    assert found(train) == {}
