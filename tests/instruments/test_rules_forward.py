"""Faults in the forward pass and in the data, each in several programs, and healthy twins."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from instruments.test_rules_harness import classes, found, network, regression
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset


def loop(run, loss_of, *, data=None, net=None, rate=0.01, batch_size=16, optimizer=None):
    """The textbook loop with its network, data and loss given."""
    net = net or network(6, 5)
    opt = optimizer or torch.optim.Adam(net.parameters(), lr=rate)
    batches = run.steps(data or classes(), model=net, optimizer=opt, batch_size=batch_size)
    for x, y in batches:
        opt.zero_grad()
        loss = loss_of(net, x, y)
        run.log(loss)
        loss.backward()
        opt.step()


def binary(net, x, y):
    return F.binary_cross_entropy_with_logits(net(x)[:, 0], (y > 2).float())


DOUBLE = {
    "method": lambda net, x, y: F.cross_entropy(net(x).softmax(1), y),
    "function": lambda net, x, y: nn.CrossEntropyLoss()(torch.softmax(net(x), dim=-1), y),
    "module": lambda net, x, y: F.cross_entropy(nn.Softmax(dim=1)(net(x)), y),
    "by hand": lambda net, x, y: F.nll_loss(net(x).softmax(1).log_softmax(1), y),
    "no log": lambda net, x, y: F.nll_loss(net(x).softmax(1), y),
    "sequence": lambda net, x, y: F.cross_entropy(
        net(x)[:, None].expand(-1, 3, -1).softmax(-1).transpose(1, 2), y[:, None].expand(-1, 3)
    ),
    "sigmoid": lambda net, x, y: F.binary_cross_entropy_with_logits(
        torch.sigmoid(net(x))[:, 0], (y > 2).float()
    ),
}


@pytest.mark.parametrize("name", DOUBLE)
def test_probabilities_in_the_place_of_logits_are_found(name):
    finding = found(lambda run: loop(run, DOUBLE[name]))["double_softmax"]
    assert finding["place"].startswith("test_rules_forward.py:")


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "loss_of",
    [
        pytest.param(lambda net, x, y: F.mse_loss(net(x), y), id="mse"),
        pytest.param(lambda net, x, y: nn.SmoothL1Loss()(net(x), y), id="smooth l1"),
        pytest.param(lambda net, x, y: ((net(x) - y) ** 2).mean(), id="by hand"),
        pytest.param(lambda net, x, y: (y - net(x)).abs().mean(), id="by hand, reversed"),
        pytest.param(lambda net, x, y: F.l1_loss(net(x)[:, 0], y[:, None]), id="target a column"),
    ],
)
def test_shapes_that_broadcast_are_found(loss_of):
    data = regression(column=False)
    findings = found(lambda run: loop(run, loss_of, data=data, net=network()))
    assert findings["loss_shapes_broadcast"]["strength"] == "certain"


class Block(nn.Module):
    """A residual block whose body may be recomputed in the backward pass."""

    def __init__(self, *, keep, reentrant, functional=False):
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.drop = nn.Dropout(0.0 if functional else 0.3)
        self.keep, self.reentrant, self.functional = keep, reentrant, functional

    def body(self, x):
        x = self.drop(torch.relu(self.one(x)))
        return self.two(F.dropout(x, 0.3) if self.functional else x)

    def forward(self, x):
        return x + checkpoint(
            self.body, x, use_reentrant=self.reentrant, preserve_rng_state=self.keep
        )


def stack(**options):
    return nn.Sequential(nn.Linear(6, 16), *(Block(**options) for _ in range(3)), nn.Linear(16, 5))


def ce(net, x, y):
    return F.cross_entropy(net(x), y)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("functional", [False, True])
def test_a_recomputed_dropout_that_draws_anew_is_found(reentrant, functional):
    net = stack(keep=False, reentrant=reentrant, functional=functional)
    finding = found(lambda run: loop(run, ce, net=net))["recomputation_differs"]
    assert finding["place"] == ("3.two" if functional else "3.drop")


def pixels(n=256):
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (n,), generator=g)
    x = 128 + (2 * y[:, None] - 1) * 6 + 12 * torch.randn(n, 6, generator=g)
    return TensorDataset(x.clamp(0, 255).to(torch.uint8), y)


def doubled(x):
    x = x.clone()
    x *= 2
    return x.float() / 255


WRAPS = {
    "minus": lambda net, x, y: ce(net, (x - 128) / 128, y),
    "from": lambda net, x, y: ce(net, (100 - x) / 128, y),
    "in place": lambda net, x, y: ce(net, doubled(x), y),
    "torch.sub": lambda net, x, y: ce(net, torch.sub(x, 128).float(), y),
    "cast": lambda net, x, y: ce(net, (x.float() * 2).to(torch.uint8) / 255, y),
    "int8": lambda net, x, y: ce(net, ((x // 2).to(torch.int8) * 3) / 255, y),
}


@pytest.mark.parametrize("name", WRAPS)
def test_small_integers_that_wrap_are_found(name):
    assert "integer_wraps" in found(lambda run: loop(run, WRAPS[name], data=pixels()))


def angles(positions, dtype):
    rates = 1.0 / 1000 ** (torch.arange(0, 16, 2) / 16)
    return (positions.to(dtype)[:, None] * rates.to(dtype)).float()


def table(dtype):
    found_angles = angles(torch.arange(1024), dtype)
    return torch.cat([found_angles.cos(), found_angles.sin()], dim=1)


def positions(n=256):
    g = torch.Generator().manual_seed(0)
    p = torch.randint(0, 1024, (n,), generator=g)
    return TensorDataset(p, p % 4)


class Rotary(nn.Module):
    """A network on a table of positions, made at construction or at every call."""

    def __init__(self, dtype, *, late):
        super().__init__()
        self.net, self.dtype, self.late = network(16, 5), dtype, late
        self.register_buffer("table", torch.zeros(1) if late else table(dtype))

    def forward(self, p):
        rows = table(self.dtype) if self.late else self.table
        return self.net(rows[p])


@pytest.mark.parametrize("late", [False, True])
def test_positions_that_collide_are_found(late):
    net = Rotary(torch.bfloat16, late=late)
    assert "positions_collide" in found(lambda run: loop(run, ce, data=positions(), net=net))


def test_a_table_in_a_closure_is_looked_at():
    rows = table(torch.bfloat16)
    net = network(16, 5)
    finding = found(
        lambda run: loop(run, lambda n, p, y: ce(n, rows[p], y), data=positions(), net=net)
    )
    assert finding["positions_collide"]["cure"] == {"variable": "precision", "dose": "fp32"}


def advantages(net, x, y):
    gain = y[:, 0]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    return -(net(x)[:, 0] * gain).mean()


@pytest.mark.filterwarnings("ignore:std")
def test_a_deviation_of_one_value_is_found_when_it_spoils_the_loss():
    def train(run):
        loop(run, advantages, data=regression(), net=network(), batch_size=1)

    assert "batch_statistics_of_one" in found(train)


def scaled(*, wide_rows=256):
    """Return 256 samples, the first of which have features in the thousands."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(256, 6, generator=g)
    x[:wide_rows] = 1e4 * torch.rand(6, generator=g) + 2e3 * x[:wide_rows]
    return TensorDataset(x, torch.zeros(256, dtype=torch.long))


@pytest.mark.parametrize(
    ("wide_rows", "updates", "spoken"),
    [(256, 1, True), (16, 1, True), (32, 4, True), (16, 4, False)],
)
def test_wide_inputs_are_told_from_the_first_batch_on_if_half_are_wide(wide_rows, updates, spoken):
    findings = found(lambda run: loop(run, ce, data=scaled(wide_rows=wide_rows)), updates=updates)
    assert ("input_range" in findings) == spoken


def test_wide_inputs_are_suspicious_unless_a_normalisation_comes_first():
    wide = scaled()
    finding = found(lambda run: loop(run, ce, data=wide))["input_range"]
    assert finding["strength"] == "suspicious"
    assert finding["cure"] == {"variable": "standardise_inputs", "dose": "on"}
    normed = nn.Sequential(nn.BatchNorm1d(6), network(6, 5))
    assert "input_range" not in found(lambda run: loop(run, ce, data=wide, net=normed))


class AlwaysTheSame(Dataset):
    """A dataset that forgets its index within a batch's worth of samples."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return self.inner[index % 16]


def test_equal_content_under_other_ids_is_found():
    data = AlwaysTheSame(classes())
    assert "repeated_batches" in found(lambda run: loop(run, ce, data=data), updates=8)


def tail(number):
    return [486 + (16 * number + i) % 26 for i in range(16)]


def test_a_pass_that_is_cut_short_again_and_again_is_found():
    train = lambda run: loop(run, ce)  # noqa: E731
    assert "repeated_batches" in found(train, updates=12, ids=tail)
    before = tuple(tuple(range(16 * k, 16 * k + 16)) for k in range(20))
    finding = found(train, updates=40, ids=tail, earlier_ids=before)["repeated_batches"]
    assert finding["strength"] == "certain"


def draws(number):
    g = torch.Generator().manual_seed(number)
    return torch.randint(0, 512, (16,), generator=g).tolist()


class Experts(nn.Module):
    """A top-1 mixture; a push on one expert collapses it."""

    def __init__(self, push, *, use):
        super().__init__()
        self.gate, self.use = nn.Linear(6, 8), use
        self.experts = nn.ModuleList(nn.Linear(6, 5) for _ in range(8))
        with torch.no_grad():
            self.gate.bias[0] += push

    def forward(self, x):
        p = self.gate(x).softmax(1)
        every = torch.stack([expert(x) for expert in self.experts], 1)
        if self.use == "index":
            k = p.argmax(1)
            rows = torch.arange(len(x))
            return every[rows, k] * p[rows, k][:, None]
        if self.use == "mask":
            k = p.argmax(-1)
            out = torch.zeros_like(every[:, 0])
            for number in range(8):
                out = out + (k == number).float()[:, None] * every[:, number] * p[:, number, None]
            return out
        top, index = p.topk(2, dim=-1)
        chosen = every.gather(1, index[..., None].expand(-1, -1, 5))
        return (chosen * (top / top.sum(1, keepdim=True))[..., None]).sum(1)


@pytest.mark.parametrize("use", ["index", "mask", "topk"])
def test_a_router_that_sends_all_to_one_is_suspicious(use):
    def train(run, push):
        loop(run, ce, net=Experts(push, use=use), batch_size=32)

    assert "router_collapse" in found(lambda run: train(run, 9.0), updates=40)
    assert found(lambda run: train(run, 0.0), updates=40) == {}


def adapted(scale, rank=16, *, modules=False):
    base = nn.Linear(64, 32)
    base.requires_grad_(False)
    down, up = nn.Linear(64, rank, bias=False), nn.Linear(rank, 32, bias=False)
    nn.init.zeros_(up.weight)

    def loss_of(net, x, y):
        if modules:
            return F.mse_loss(base(x) + up(down(x)) * scale, y)
        return F.mse_loss(x @ base.weight.t() + scale * (x @ down.weight.t() @ up.weight.t()), y)

    net = nn.ModuleList([base, down, up])
    g = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(256, 64, generator=g), torch.randn(256, 32, generator=g))
    opt = torch.optim.SGD([down.weight, up.weight], lr=1e-3)
    return lambda run: loop(run, loss_of, data=data, net=net, optimizer=opt)


@pytest.mark.parametrize("modules", [False, True])
def test_an_adapter_scaled_by_alpha_is_suspicious(modules):
    assert "adapter_scale" in found(adapted(32.0, modules=modules))
    assert "adapter_scale" not in found(adapted(2.0, modules=modules))
    assert "adapter_scale" not in found(adapted(8.0, rank=4, modules=modules))


def attention(net, x, y):
    z = net(x)
    mask = torch.full((16, 16), -math.inf).triu(1)
    weights = (z @ z.t() + mask).softmax(-1)
    accuracy = ((weights @ z).argmax(1) == y).float().mean()
    assert accuracy >= 0
    return F.cross_entropy(weights @ z, y)


HEALTHY = {
    "classifier": lambda run: loop(run, ce),
    "log-probabilities": lambda run: loop(run, lambda n, x, y: F.nll_loss(n(x).log_softmax(1), y)),
    "log-probabilities again": lambda run: loop(
        run, lambda n, x, y: F.cross_entropy(n(x).log_softmax(1), y)
    ),
    "binary": lambda run: loop(run, binary),
    "sigmoid and bce": lambda run: loop(
        run, lambda n, x, y: F.binary_cross_entropy(torch.sigmoid(n(x))[:, 0], (y > 2).float())
    ),
    "distillation": lambda run: loop(
        run,
        lambda n, x, y: F.kl_div(n(x).log_softmax(1), x[:, :5].softmax(1), reduction="batchmean"),
    ),
    "soft targets": lambda run: loop(
        run, lambda n, x, y: F.cross_entropy(n(x), x[:, :5].softmax(1))
    ),
    "attention": lambda run: loop(run, attention),
    "pairs": lambda run: loop(
        run, lambda n, x, y: F.softplus(n(x)[:, :1] - n(x)[:, 0]).mean() + ce(n, x, y)
    ),
    "regression": lambda run: loop(
        run, lambda n, x, y: F.mse_loss(n(x), y), data=regression(), net=network(dropout=0.2)
    ),
    "squeezed": lambda run: loop(
        run,
        lambda n, x, y: ((n(x).squeeze(1) - y) ** 2).mean(),
        data=regression(column=False),
        net=network(),
    ),
    "checkpoint": lambda run: loop(run, ce, net=stack(keep=True, reentrant=False)),
    "reentrant checkpoint": lambda run: loop(run, ce, net=stack(keep=True, reentrant=True)),
    "bytes to float": lambda run: loop(
        run, lambda n, x, y: ce(n, (x.float() - 128) / 128, y), data=pixels()
    ),
    "positions in float32": lambda run: loop(
        run, ce, data=positions(), net=Rotary(torch.float32, late=True)
    ),
    "drawn with replacement": lambda run: loop(run, ce),
    "batch of one": lambda run: loop(
        run, lambda n, x, y: F.mse_loss(n(x), y), data=regression(), net=network(), batch_size=1
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_left_alone(name):
    kwargs = {"ids": draws, "updates": 30} if "replacement" in name else {}
    assert found(HEALTHY[name], **kwargs) == {}
