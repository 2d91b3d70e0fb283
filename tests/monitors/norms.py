"""Norms the slow and obvious way, and a monitor's figures of one step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stabexp.training.measured import to_host


def norms_of(parameters):
    return torch.stack([p.grad.norm() for p in parameters])


def weight_norms_of(parameters):
    return torch.stack([p.detach().float().norm() for p in parameters])


def slow_norm(tensors):
    return math.sqrt(sum(x * x for t in tensors for x in t.detach().flatten().tolist()))


def figures(measured):
    """Return what a monitor measured by name, as floats."""
    numbers, _ = to_host(measured, torch.tensor(0), torch.device("cpu"))
    return numbers


def measure(monitor, model, forward, optimizer=None):
    """Make one step of `forward`, a loss; return what the monitor saw of it."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.attach(model, [optimizer])
    optimizer.zero_grad()
    monitor.step_begins()
    loss = forward()
    assert isinstance(loss, Tensor)
    loss.backward()
    parameters = [p for p in model.parameters() if p.grad is not None]
    seen = dict(monitor.before_update(parameters, norms_of(parameters)))
    optimizer.step()
    seen |= monitor.after_update(parameters, weight_norms_of(parameters))
    monitor.detach()
    return figures(seen)


def loss_of(model):
    torch.manual_seed(1)
    x = torch.randn(5, 4)
    return lambda: model(x).pow(2).sum()


def elements(tensors):
    return [x for t in tensors for x in t.detach().flatten().tolist()]
