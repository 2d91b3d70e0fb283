"""Faults between the gradient and the new parameters: optimizer, scaler, clipping by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from instruments.locate_harness import Net, Table
from torch import nn

UPDATE = Table()
step = UPDATE.step


def half_net():
    return Net().half()


def labels():
    return torch.tensor([0, 1, 2, 3])


@step("addcdiv", "update_division", "optimizer", model=half_net)
def adam_in_float16(net, optimizer, batch, log):
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8, foreach=False)
    loss = F.cross_entropy(net(batch.half()).float(), labels()) * 1e-3
    log(loss)
    loss.backward()
    adam.step()  # here


@step("addcdiv", "update_division", "optimizer", model=half_net)
def adam_foreach_in_float16(net, optimizer, batch, log):
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-8, foreach=True)
    loss = F.cross_entropy(net(batch.half()).float(), labels()) * 1e-3
    log(loss)
    loss.backward()
    adam.step()  # here


@step("addcdiv", "update_division", "optimizer", parameter="first.weight")
def rmsprop_without_eps(net, optimizer, batch, log):
    rmsprop = torch.optim.RMSprop(net.parameters(), lr=1e-3, eps=0.0, foreach=False)
    loss = (net(batch) * 0).sum()
    log(loss)
    loss.backward()
    rmsprop.step()  # here


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / p.grad.norm())  # here


@step("div", "update_division", "optimizer", source_of=OwnOptimizer)
def own_optimizer(net, optimizer, batch, log):
    loss = (net(batch) * 0).sum()
    log(loss)
    loss.backward()
    OwnOptimizer(net.parameters()).step()


@step("reciprocal", "scaler", "scaler")
def scale_has_fallen_to_zero(net, optimizer, batch, log):
    scaler = torch.amp.GradScaler("cpu", init_scale=1e-46)
    loss = net(batch).square().mean()
    log(loss)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # here
    optimizer.step()


@step("mul", "zero_times_inf", "optimizer")
def clipping_by_an_infinite_norm(net, optimizer, batch, log):
    h = net(batch)
    loss = (h * 1e-3).sum()
    log(loss)
    (loss * 1e9).backward()
    gradients = [p.grad.half() for p in net.parameters()]
    norm = torch.stack([g.float().norm() for g in gradients]).norm()
    coefficient = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    for p, g in zip(net.parameters(), gradients, strict=True):
        p.grad = g.float() * coefficient  # here
    optimizer.step()


@step("div", "update_division", "optimizer")
def normalised_gradient_of_zero(net, optimizer, batch, log):
    loss = (net(batch) * 0).sum()
    log(loss)
    loss.backward()
    with torch.no_grad():
        for p in net.parameters():
            p.grad = p.grad / p.grad.norm()  # here
    optimizer.step()


@step("sqrt", "sqrt_at_zero", "backward")
def library_clipping_of_an_infinite_gradient(net, optimizer, batch, log):
    loss = (net(batch) * 0).square().sum(1).sqrt().sum()  # here
    log(loss)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()


@step("div", "division_by_zero", "forward")
def division_in_the_second_micro_batch(net, optimizer, batch, log):
    for scale in (1.0, 0.0):
        loss = (net(batch) / (batch * 0 + scale)).mean()  # here
        loss.backward()
    log(loss)
    optimizer.step()


@step("log", "log_of_zero", "forward")
def loss_logged_after_the_update(net, optimizer, batch, log):
    loss = (net(batch) * 0).log().mean()  # here
    loss.backward()
    optimizer.step()
    log(loss)


@step("add", "nonfinite_number", "optimizer", kind="nan")
def learning_rate_is_not_a_number(net, optimizer, batch, log):
    for group in optimizer.param_groups:
        group["lr"] = float("nan")
    loss = net(batch).mean()
    log(loss)
    loss.backward()
    optimizer.step()  # here


@step("log", "log_of_zero", "forward")
def value_read_back_as_a_number(net, optimizer, batch, log):
    weight = (batch * 0).sum().log().item()  # here
    loss = net(batch).mean() * weight
    log(loss)
    loss.backward()
    optimizer.step()


@step("fill", "written_value", "optimizer")
def gradient_overwritten_by_hand(net, optimizer, batch, log):
    loss = net(batch).mean()
    log(loss)
    loss.backward()
    net.first.bias.grad.fill_(float("nan"))  # here
    optimizer.step()
