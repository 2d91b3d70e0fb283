"""One small training, either with interventions at the boundary or with the change written out.

The written-out loop is plain torch without anything of ours in it, so that equal bits mean that an
intervention does what its sentence says, and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from stabexp.interventions import build
from stabexp.training.boundary import Boundary
from stabexp.training.changes import Changes

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, foreach=False),
    "sgd foreach nesterov": partial(torch.optim.SGD, momentum=0.9, nesterov=True, foreach=True),
    "adam": partial(torch.optim.Adam, foreach=False),
    "adamw": partial(torch.optim.AdamW, foreach=False),
    "adamw foreach": partial(torch.optim.AdamW, foreach=True),
    "adamw fused": partial(torch.optim.AdamW, fused=True),
}

ADAMS = [name for name in OPTIMIZERS if name.startswith("adam")]

Step = Callable[[nn.Module, torch.optim.Optimizer, int], None]


def nothing(model, optimizer, step):
    """Do nothing by hand."""


@dataclass(frozen=True, kw_only=True)
class Hand:
    """What a written-out loop does itself, by the place where it does it."""

    start: Step = nothing
    """Once, before the first step."""
    before: Step = nothing
    """Just before the update, with gradients unscaled and clipped."""
    after: Step = nothing
    """Just after the update, before the schedule."""
    between: Step = nothing
    """At the start of every step: a fault of the loop, present with interventions too."""


def built_with(option, value):
    """Return what an optimizer built with another value of an option does by hand."""

    def start(model, optimizer, step):
        for group in optimizer.param_groups:
            group[option] = value

    return Hand(start=start)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.encoder(x)))


def parts(optimizer, *, tensor_rate=False, groups=None, model=None):
    """Return a fresh model and its optimizer, in two groups of different rates and decays."""
    torch.manual_seed(3)
    model = model or Net()
    named = groups or (
        {"params": [*model.encoder.parameters(), *model.norm.parameters()], "lr": 0.02},
        {"params": list(model.head.parameters()), "lr": 0.05, "weight_decay": 0.3},
    )
    if tensor_rate:
        named = [{**group, "lr": torch.tensor(group["lr"])} for group in named]
    made = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    return model, made(named, lr=torch.tensor(0.1) if tensor_rate else 0.1, weight_decay=0.1)


def course(
    optimizer="sgd",
    *,
    interventions=None,
    hand=Hand(),
    make=parts,
    scaled=False,
    clip=None,
    accumulate=1,
    steps=6,
    overflow_at=None,
    autocast=None,
    scratch=True,
    scheduled=True,
    tensor_rate=False,
):
    """Train; return weights and optimizer state after each step."""
    model, opt = make(optimizer, tensor_rate=tensor_rate)
    torch.manual_seed(5)
    data = [(torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(steps * accumulate)]
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.8 if scheduled else 1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if scaled else None
    changes = boundary = None
    hand.start(model, opt, 0)
    if interventions is not None:
        changes = Changes(build(interventions))
        changes.begin(model, opt, scratch=scratch)
        boundary = Boundary(
            model,
            opt,
            scaler=scaler,
            monitors=(),
            clip=lambda configured: configured,
            lr_scale=lambda step: 1.0,
            changes=changes,
        )
        boundary.begin(0)
    seen = []
    for step in range(steps):
        hand.between(model, opt, step)
        for x, y in data[step * accumulate : (step + 1) * accumulate]:
            given = (x, y) if changes is None else changes.batch_begins((x, y))
            context = torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext()
            with context:
                loss = functional.cross_entropy(model(given[0]), given[1]) / accumulate
            if step == overflow_at:
                loss = loss * torch.inf
            (scaler.scale(loss) if scaler else loss).backward()
            if changes is not None:
                changes.batch_ends()
        if scaler:
            scaler.unscale_(opt)
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        hand.before(model, opt, step)
        if scaler:
            scaler.step(opt)
            scaler.update()
        else:
            opt.step()
        hand.after(model, opt, step)
        seen.append(bits(model, opt))
        if boundary is not None:
            boundary.begin(step + 1)
        schedule.step()
        opt.zero_grad()
    if boundary is not None:
        boundary.close()
        changes.end()
    assert not opt._optimizer_step_pre_hooks
    return seen


def bits(model, optimizer):
    """Return weights and optimizer state by name."""
    found = {name: p.detach().clone() for name, p in model.named_parameters()}
    for index, p in enumerate(model.parameters()):
        for key, value in optimizer.state.get(p, {}).items():
            found[f"state {index} {key}"] = torch.as_tensor(value).clone()
    return found


def assert_same_bits(one, other):
    """Compare two courses, weights and optimizer state, after every step."""
    assert len(one) == len(other)
    for step, (left, right) in enumerate(zip(one, other, strict=True)):
        assert left.keys() == right.keys(), step
        for key in left:
            assert left[key].dtype == right[key].dtype, (step, key)
            assert torch.equal(_raw(left[key]), _raw(right[key])), (step, key)


def differ(one, other):
    """Whether the weights of two courses end apart."""
    return any(not torch.equal(_raw(one[-1][key]), _raw(other[-1][key])) for key in one[-1])


def _raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)
