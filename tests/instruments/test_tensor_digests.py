"""Every tensor of a step is seen, in order, and nothing of the training is changed by it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

from stabexp.bisection.tensor_difference import first_difference, shared_steps
from stabexp.errors import TrainingError
from stabexp.instruments.tensor_digests import TensorDigests
from stabexp.training import Program, Run, RunSettings, execute

PLANTED = 3
"""The step at which a training differs from the others."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(8, 1)
        self.double = False

    def forward(self, x):
        hidden = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(hidden.double()).float() if self.double else self.last(hidden)


def fail(model, optimizer):
    raise RuntimeError("out of cheese")


START = {
    "raise": fail,
    "state": lambda m, o: o.state[m.last.weight]["momentum_buffer"].mul_(1.5),
    "extra": lambda m, o: m.norm(torch.ones(2, 8)),
    "hook": lambda m, o: m.first.weight.register_hook(lambda grad: grad * 1.5),
}
BEFORE_UPDATE = {
    "noise": lambda m, o: m.norm.bias.grad.add_(1e-3),
    "rate": lambda m, o: o.param_groups[0].update(lr=0.06),
}
AFTER_UPDATE = {
    "weights": lambda m, o: m.last.bias.data.add_(1e-3),
    "buffers": lambda m, o: m.norm.running_mean.add_(1e-3),
}


def train(run, plant=""):
    """An ordinary loop in which something else happens at one step, if it is told so."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = run.scaler()
    accumulate = run.settings.accumulate

    def happens(where):
        if run.step == PLANTED and plant in where:
            where[plant](model, optimizer)

    batches = run.steps(data, model=model, optimizer=optimizer, scaler=scaler)
    for index, (inputs, targets) in enumerate(batches):
        happens(START)
        if run.step == PLANTED and plant == "batch":
            inputs[0, 0] += 1  # after the loop was handed it
        with run.autocast():
            output = model(inputs)
        factor = 1.5 if run.step == PLANTED and plant == "loss" else 1.0
        loss = ((output - targets) ** 2).mean() * factor
        run.log(loss)
        share = loss / accumulate
        (share if scaler is None else scaler.scale(share)).backward()
        if (index + 1) % accumulate:
            continue
        happens(BEFORE_UPDATE)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        happens(AFTER_UPDATE)


def watched(plant="", *, instruments, steps=6, **settings):
    """Train; return what the first instrument found and the records without their times."""
    records = []
    program = Program(
        settings=RunSettings(name="t", steps=steps, batch_size=8, **settings),
        train=lambda run: train(run, plant),
    )
    run = Run(program.settings, on_step=records.append, instruments=instruments, judged=False)
    execute(program, run)
    bare = [dataclasses.replace(record, time=0.0, seconds=0.0) for record in records]
    return (instruments[0].findings() if instruments else None), bare


def digests(plant="", **arguments):
    return watched(plant, instruments=(TensorDigests(),), **arguments)[0]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_watched_training_is_the_same_in_every_bit(accumulate, precision):
    settings = {"accumulate": accumulate, "precision": precision}
    _, plain = watched(instruments=(), **settings)
    found, seen = watched(instruments=(TensorDigests(),), **settings)
    assert seen == plain
    scaled = any(entry[1] == "scaler" for entry in found["0"])
    assert scaled == (precision == "fp16")


def test_two_equal_trainings_have_equal_digests_of_every_step():
    a, b = digests(), digests()
    assert first_difference(a, b) is None
    assert shared_steps(a, b) == tuple(range(6))
    assert json.loads(json.dumps(a)) == a


def test_the_tensors_of_a_step_come_in_order_of_execution():
    (step,) = digests(steps=1).values()
    phases = list(dict.fromkeys(entry[1] for entry in step))
    assert phases == [
        "input",
        "forward",
        "loss",
        "backward",
        "gradients",
        "settings",
        "optimizer",
        "parameters",
        "buffers",
    ]
    forward = [entry[2] for entry in step if entry[1] == "forward"]
    assert forward == ["first", "norm", "drop", "last", "the model"]
    backward = [entry[2].split(".")[0] for entry in step if entry[1] == "backward"]
    assert backward == sorted(backward, key=["last", "norm", "first"].index)
    assert {entry[3] for entry in step if entry[2] == "first.weight"} == {"float32(8, 4)"}


@pytest.mark.parametrize(
    ("plant", "phase", "name"),
    [
        ("batch", "forward", "first"),
        ("loss", "loss", "loss"),
        ("hook", "backward", "first.weight"),
        ("noise", "gradients", "norm.bias"),
        ("rate", "settings", "groups.0.lr"),
        ("state", "optimizer", "last.weight.momentum_buffer"),
        ("weights", "parameters", "last.bias"),
        ("buffers", "buffers", "norm.running_mean"),
    ],
)
def test_where_two_trainings_part_is_named(plant, phase, name):
    found = first_difference(digests(), digests(plant))
    assert found is not None
    assert (found.step, found.phase, found.name, found.kind) == (PLANTED, phase, name, "bits")


def test_another_seed_shows_first_in_the_batch():
    found = first_difference(digests(), digests(seed=1))
    assert found is not None
    assert (found.step, found.phase, found.name) == (0, "input", "0")


def test_a_module_that_ran_once_more_is_extra():
    plain, more = digests(), digests("extra")
    found = first_difference(plain, more)
    assert found is not None
    assert (found.step, found.phase, found.name) == (PLANTED, "forward", "norm")
    assert (found.kind, first_difference(more, plain).kind) == ("extra", "missing")


def test_the_micro_batch_is_named():
    a, b = digests(accumulate=2), digests("loss", accumulate=2)
    found = first_difference(a, b)
    assert found is not None
    assert (found.step, found.batch, found.phase) == (PLANTED, 0, "loss")
    assert {entry[0] for entry in a["1"]} == {0, 1}


def test_only_the_steps_asked_for_are_watched():
    found, _ = watched(instruments=(TensorDigests(first_step=2, last_step=3),))
    assert list(found) == ["2", "3"]


def test_every_hook_is_taken_back_also_when_the_training_raised():
    models = []

    def failing(run):
        inner = run.steps

        def steps(data, **arguments):
            models.append(arguments["model"])
            return inner(data, **arguments)

        run.steps = steps
        train(run, "raise")

    instrument = TensorDigests()
    program = Program(settings=RunSettings(name="t", steps=6, batch_size=8), train=failing)
    run = Run(program.settings, instruments=(instrument,))
    with pytest.raises(TrainingError, match="out of cheese"):
        execute(program, run)
    (model,) = models
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert list(instrument.findings()) == ["0", "1", "2"]


def test_a_compiled_module_is_only_watched_from_outside():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    wrapper = nn.Module()
    wrapper.inner = nn.Module()
    wrapper.inner._orig_mod = model  # as torch.compile leaves it
    from stabexp.instruments.base import Watched

    instrument = TensorDigests()
    instrument.attach(Watched(model=wrapper, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)))
    assert wrapper.inner._forward_hooks
    assert not any(module._forward_hooks for module in model.modules())
    instrument.detach()
