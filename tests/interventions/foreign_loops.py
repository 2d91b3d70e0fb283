"""Training loops that know nothing of stabexp, each run bare, watched, or changed by hand.

Their own autocast, scaler, clipping, schedules and accumulation are the point. A loop takes a run
and a `Hand`. The run is ours or `Bare`, which yields the same batches and has nothing of ours in
it; the hand is what somebody would edit in the loop to make one change.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from stabexp.training import Run
from stabexp.training.loader_watch import LoaderWatch

SAMPLES, BATCH = 96, 4
CLIP = 0.3
"""Where the loops that clip do so; below most of their gradient norms."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 8))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)
        self.exact = False

    def forward(self, x):
        hidden = self.norm(self.encoder(x))
        if not self.exact:
            return self.head(hidden)
        with torch.autocast("cpu", enabled=False):
            return self.head(hidden.float())


def dataset():
    torch.manual_seed(7)
    inputs = 3 * torch.randn(SAMPLES, 6) + 1
    return TensorDataset(inputs, torch.randint(3, (SAMPLES,)))


def loader():
    """Return batches in an order of their own, so that nobody else's order can stand in for it."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(2)).tolist()
    batches = [order[i : i + BATCH] for i in range(0, SAMPLES, BATCH)]
    return DataLoader(dataset(), batch_sampler=batches)


@dataclass(kw_only=True)
class Hand:
    """One change, written into a loop, from the step `since` on."""

    since: int = 0
    clip: float | None = None
    autocast: Any = "own"
    """Data type of the loop's autocast region; None for no region."""
    rate: Any = None
    """Factor on the learning rate by step."""
    hold: bool = False
    decay: float = 1.0
    gradient: float = 1.0
    head: float = 1.0
    """Factor on the rate of the head, which has a group of its own."""
    options: dict[str, Any] = field(default_factory=dict)
    skip: frozenset[int] = frozenset()
    clamp: float | None = None
    forget: bool = False
    shrink: float = 1.0
    exact: bool = False
    standard: bool = False
    join: int = 1
    replace: dict[int, int] = field(default_factory=dict)
    first: tuple[tuple[int, ...], ...] = ()
    held: dict[int, list[Any]] = field(default_factory=dict)

    def on(self, step):
        return step >= self.since

    def region(self, own, step):
        dtype = self.autocast if self.on(step) and self.autocast != "own" else own
        return torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext()

    def begins(self, model, step):
        """Change the model itself; called for every batch."""
        model.exact = self.exact and self.on(step)

    def inputs(self, x, step):
        if not (self.standard and self.on(step)):
            return x
        wide = x.double()
        centred = wide - wide.sum(0, keepdim=True) / len(x)
        return (centred / (centred.square().sum(0, keepdim=True) / len(x)).sqrt()).float()

    def loss(self, loss, step):
        if self.clamp is None or not self.on(step):
            return loss
        return torch.clamp(loss, max=self.clamp)

    def clipping(self, parameters, own, step):
        limit = self.clip if self.clip is not None and self.on(step) else own
        if limit is not None:
            nn.utils.clip_grad_norm_(parameters, limit)

    def update(self, optimizer, step, call):
        """Make an update by `call`, with other values in its groups while it is made."""
        if not self.on(step):
            call()
            return
        groups = optimizer.param_groups
        self.held.setdefault(id(optimizer), [group["lr"] for group in groups])
        if self.forget and step == self.since:
            optimizer.state.clear()
        if step in self.skip:
            return
        own = [dict(group) for group in groups]
        for group, held in zip(groups, self.held[id(optimizer)], strict=True):
            group["lr"] = held if self.hold else group["lr"]
            if self.rate is not None:
                group["lr"] = group["lr"] * self.rate(step)
            if group["name"] == "head" and self.head not in (0.0, 1.0):
                group["lr"] = group["lr"] * self.head
            for p in group["params"]:
                if group["name"] == "head" and self.head == 0.0:
                    p.grad = None
                elif self.gradient != 1.0 and p.grad is not None:
                    p.grad = p.grad * self.gradient
            group["weight_decay"] *= self.decay
            group.update({key: value for key, value in self.options.items() if key in group})
        call()
        for group, before in zip(groups, own, strict=True):
            group.update({key: value for key, value in before.items() if key != "params"})


class Bare:
    """Yields the batches of a loader, joined or exchanged by hand, and keeps the losses."""

    def __init__(self, hand, *, steps, accumulate):
        self.hand, self.until, self.accumulate = hand, steps, accumulate
        self.step = self.batches = 0
        self.losses = []

    def steps(self, loader, **parts):
        passes = self.chained(loader)
        data = loader.dataset
        while self.step < self.until:
            on = self.hand.on(self.step)
            shown = self.batches - self.hand.since * self.accumulate
            if on and shown < len(self.hand.first):
                ids = self.hand.first[shown]
            else:
                ids = [i for _ in range(self.hand.join if on else 1) for i in next(passes)]
                ids = [self.hand.replace.get(i, i) if on else i for i in ids]
            yield [data.tensors[0][list(ids)], data.tensors[1][list(ids)]]
            self.batches += 1
            self.step = self.batches // self.accumulate

    def begin(self, **parts):
        pass

    def begin_step(self):
        pass

    def batch(self, batch):
        return contextlib.nullcontext(batch)

    def end_step(self):
        return self.batches + 1 < self.until * self.accumulate

    def chained(self, loader):
        while True:
            torch.empty((), dtype=torch.int64).random_()  # as a loader that begins a pass does
            yield from loader.batch_sampler

    def log(self, loss):
        self.losses.append(loss.item())


@dataclass(kw_only=True)
class Trained:
    """What a loop leaves behind."""

    model: nn.Module
    optimizers: list[torch.optim.Optimizer]
    schedules: list[Any]
    scaler: torch.amp.GradScaler | None = None
    groups: list[Any] = field(init=False)

    def __post_init__(self):
        self.groups = [(list(each.param_groups), each.param_groups) for each in self.optimizers]


def started(run, hand):
    torch.manual_seed(3)
    model = Net()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(hand.shrink)
    body = [*model.encoder.parameters(), *model.norm.parameters()]
    groups = [
        {"params": body, "name": "body", "lr": 0.02, "weight_decay": 0.1},
        {"params": list(model.head.parameters()), "name": "head", "lr": 0.05, "weight_decay": 0.3},
    ]
    return model, groups


def own_autocast(run, hand):
    """bfloat16 regions, clipping, a cosine schedule and two batches per update, all its own."""
    model, groups = started(run, hand)
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    run.trained = Trained(model=model, optimizers=[optimizer], schedules=[schedule])
    steps = run.steps(loader(), model=model, optimizer=optimizer, scheduler=schedule)
    for index, (x, y) in enumerate(steps, start=1):
        step = run.step
        hand.begins(model, step)
        with hand.region(torch.bfloat16, step):
            loss = functional.cross_entropy(model(hand.inputs(x, step)), y)
        run.log(loss)
        (hand.loss(loss, step) / 2).backward()
        if index % 2 == 0:
            hand.clipping(model.parameters(), CLIP, step)
            hand.update(optimizer, step, optimizer.step)
            schedule.step()
            optimizer.zero_grad()


def own_scaler(run, hand):
    """float16 regions with a GradScaler of its own, unscaled before it clips."""
    model, groups = started(run, hand)
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    run.trained = Trained(model=model, optimizers=[optimizer], schedules=[schedule], scaler=scaler)
    steps = run.steps(loader(), model=model, optimizer=optimizer, scheduler=schedule, scaler=scaler)
    for x, y in steps:
        step = run.step
        hand.begins(model, step)
        with hand.region(torch.float16, step):
            loss = functional.cross_entropy(model(hand.inputs(x, step)), y)
        run.log(loss)
        scaler.scale(hand.loss(loss, step)).backward()
        scaler.unscale_(optimizer)
        hand.clipping(model.parameters(), CLIP, step)
        hand.update(optimizer, step, lambda: scaler.step(optimizer))
        scaler.update()
        schedule.step()
        optimizer.zero_grad()


def two_optimizers(run, hand):
    """Adam for the body and SGD for the head, each clipped by itself; the loss divided in place."""
    model, groups = started(run, hand)
    optimizers = [torch.optim.Adam(groups[:1]), torch.optim.SGD(groups[1:], momentum=0.5)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in optimizers]
    run.trained = Trained(model=model, optimizers=optimizers, schedules=schedules)
    steps = run.steps(loader(), model=model, optimizer=optimizers, scheduler=schedules)
    for index, (x, y) in enumerate(steps, start=1):
        step = run.step
        hand.begins(model, step)
        loss = functional.cross_entropy(model(hand.inputs(x, step)), y)
        run.log(loss)
        loss = hand.loss(loss, step)
        loss /= 2
        loss.backward()
        if index % 2 == 0:
            for each in optimizers:
                hand.clipping(each.param_groups[0]["params"], CLIP, step)
                hand.update(each, step, each.step)
                each.zero_grad()
            for each in schedules:
                each.step()


def own_order(run, hand):
    """A trainer that iterates its loader itself and tells the run what it does."""
    model, groups = started(run, hand)
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    run.trained = Trained(model=model, optimizers=[optimizer], schedules=[schedule])
    data, batches, watch = loader(), None, None
    if isinstance(run, Run):
        batches = data
        watch = LoaderWatch(data, run)
    run.begin(model=model, optimizer=optimizer, scheduler=schedule, data=watch)
    for given in batches or run.steps(data):
        run.begin_step()
        step = run.step
        hand.begins(model, step)
        with run.batch(given) as (x, y):
            loss = functional.cross_entropy(model(hand.inputs(x, step)), y)
            run.log(loss)
            hand.loss(loss, step).backward()
        hand.clipping(model.parameters(), None, step)
        hand.update(optimizer, step, optimizer.step)
        schedule.step()
        optimizer.zero_grad()
        if not run.end_step():
            return


LOOPS = {
    "own autocast": (own_autocast, 2),
    "own scaler": (own_scaler, 1),
    "two optimizers": (two_optimizers, 2),
    "own order": (own_order, 1),
}
"""Name → loop and batches per update."""


def same(one, other, path=""):
    """Return the path of the first difference of two nested values, bit for bit; "" for none."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        fits = one.dtype == other.dtype and one.shape == other.shape
        return "" if fits and torch.equal(raw(one), raw(other)) else path or "value"
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        found = (same(one[key], other[key], f"{path}.{key}") for key in one)
        return next((place for place in found if place), "")
    if isinstance(one, (list, tuple)) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        found = (same(left, right, f"{path}.{index}") for index, (left, right) in pairs)
        return next((place for place in found if place), "")
    return "" if type(one) is type(other) and one == other else path or "value"


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def state_of(trained):
    """Return everything a loop's objects remember."""
    return {
        "model": trained.model.state_dict(),
        "optimizers": [each.state_dict() for each in trained.optimizers],
        "schedules": [each.state_dict() for each in trained.schedules],
        "scaler": trained.scaler.state_dict() if trained.scaler else None,
    }
