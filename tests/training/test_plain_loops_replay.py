"""Loops as people write them: optimizers, averages, scalers and frozen layers go on exactly."""

from __future__ import annotations

import pytest
import torch
from recording import record
from torch import nn, optim
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, WeightedRandomSampler
from training.feed_worlds import WEIGHTS, Augmented, network

from stabexp.bisection.replay import first_mismatch
from stabexp.state import CheckpointStore

STEPS, FORKS = 14, (0, 3, 8, 11)
"""Eight batches in a pass, one to a step: the start, inside the first pass, and the second."""


def loader():
    return DataLoader(Augmented(), 8, sampler=WeightedRandomSampler(WEIGHTS, 60))


def square():
    """Return a network whose parameters are all matrices."""
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 1, bias=False))


OPTIMIZERS = {
    "Adam": lambda p: optim.Adam(p, 1e-2),
    "Adam, amsgrad": lambda p: optim.Adam(p, 1e-2, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 1e-2),
    "AdamW, fused": lambda p: optim.AdamW(p, 1e-2, fused=True),
    "AdamW, rate in a tensor": lambda p: optim.AdamW(p, torch.tensor(1e-2)),
    "Adamax": lambda p: optim.Adamax(p, 1e-2),
    "NAdam": lambda p: optim.NAdam(p, 1e-2),
    "RAdam": lambda p: optim.RAdam(p, 1e-2),
    "SGD": lambda p: optim.SGD(p, 1e-2),
    "SGD, Nesterov": lambda p: optim.SGD(p, 1e-2, momentum=0.9, nesterov=True),
    "Adafactor": lambda p: optim.Adafactor(p, 1e-2),
    "Adagrad": lambda p: optim.Adagrad(p, 1e-2),
    "Adadelta": optim.Adadelta,
    "RMSprop": lambda p: optim.RMSprop(p, 1e-3, momentum=0.5, centered=True),
    "ASGD": lambda p: optim.ASGD(p, 1e-2, t0=3),
    "Rprop": lambda p: optim.Rprop(p, 1e-3),
    "Muon": lambda p: optim.Muon(p, 1e-2),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch_goes_on_exactly(tmp_path, name):
    def train(run):
        model = square() if name == "Muon" else network()
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        for x, y in run.steps(loader(), model=model, optimizer=optimizer, scheduler=schedule):
            optimizer.zero_grad()
            run.log(loss := nn.functional.mse_loss(model(x), y))
            loss.backward()
            optimizer.step()
            schedule.step()

    exact(record(train, tmp_path, steps=STEPS))


def exact(made, forks=FORKS):
    assert len(made.records) == STEPS
    assert len({record.digest for record in made.records}) == STEPS
    for step in forks:
        assert first_mismatch(made.records, made.replay(step)) == (None, ""), f"from step {step}"


def averaging(run):
    """An average of the weights takes over the schedule half-way."""
    model = network()
    optimizer = optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    cosine = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    constant = SWALR(optimizer, 5e-3, anneal_epochs=3)
    extra = {"average": average, "constant": constant}
    for x, y in run.steps(
        loader(), model=model, optimizer=optimizer, scheduler=cosine, extra=extra
    ):
        optimizer.zero_grad()
        with torch.no_grad():
            teacher = average(x)
        loss = nn.functional.mse_loss(model(x), y) + 0.1 * nn.functional.mse_loss(model(x), teacher)
        run.log(loss, distance=(teacher - y).square().mean())
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        (cosine if run.step < 7 else constant).step()


def scaled(run):
    """A scaler of the loop's own grows until it leaves an update out."""
    model = network()
    optimizer = optim.Adam(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13, growth_interval=2)
    for x, y in run.steps(loader(), model=model, optimizer=optimizer, scaler=scaler):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = nn.functional.mse_loss(model(x), y)
        run.log(loss)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def freezing(run):
    """The first half of the layers is frozen at a step."""
    model = network()
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    for x, y in run.steps(loader(), model=model, optimizer=optimizer):
        if run.step == 6:
            model[0].requires_grad_(False)
            model[1].requires_grad_(False)
        optimizer.zero_grad()
        run.log(loss := nn.functional.mse_loss(model(x), y))
        loss.backward()
        optimizer.step()


def growing(run):
    """Only the last layer learns, until the rest is unfrozen and gets a smaller rate."""
    model = network()
    for layer in model[:-1]:
        layer.requires_grad_(False)
    optimizer = optim.AdamW(model[-1].parameters(), 1e-2)
    for x, y in run.steps(loader(), model=model, optimizer=optimizer):
        if run.step == 6:
            for layer in model[:-1]:
                layer.requires_grad_(True)
            new = {"params": list(model[:-1].parameters()), "lr": 1e-3, "betas": (0.8, 0.9)}
            optimizer.add_param_group(new)
        optimizer.zero_grad()
        run.log(loss := nn.functional.mse_loss(model(x), y))
        loss.backward()
        optimizer.step()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("train", [averaging, scaled, freezing, growing])
def test_what_changes_while_a_loop_runs_is_put_back(tmp_path, train):
    made = record(train, tmp_path, steps=STEPS)
    assert (train is not scaled) or any(record.skipped for record in made.records)
    exact(made, (0, 3, 5, 6, 7, 11))


def test_a_group_that_was_added_comes_back_with_its_own_options(tmp_path):
    made = record(growing, tmp_path, steps=STEPS)
    names = CheckpointStore.reader(tmp_path).load(8).objects["optimizer"]["value"]["names"]
    assert names == [
        ["model.4.weight", "model.4.bias"],
        ["model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias"],
    ]
    held = []

    def watching(run):
        growing(run)
        held.append(run.parts.optimizers[0])

    again = record(watching, tmp_path / "again", steps=STEPS)
    assert [record.digest for record in again.records] == [r.digest for r in made.records]
    again.replay(9)
    groups = held[-1].param_groups
    assert [(group["lr"], group["betas"]) for group in groups] == [
        (1e-2, (0.9, 0.999)),
        (1e-3, (0.8, 0.9)),
    ]
    model = held[-1].param_groups[1]["params"]
    assert [tuple(parameter.shape) for parameter in model] == [(16, 8), (16,), (16,), (16,)]
