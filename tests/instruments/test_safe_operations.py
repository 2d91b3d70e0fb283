"""Kept inside its domain, the operation that the locator names does no harm any more."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from instruments.backward_faults import BACKWARD
from instruments.forward_faults import FORWARD
from instruments.locate_harness import Net, batch_of, quiet, train
from instruments.update_faults import UPDATE

from stabexp.errors import ConfigError
from stabexp.training.safe_operations import SafeOperations

# What grew too large, or came in as it is, is no fault of the operation that met it.
NOT_OPERATIONS = {
    *("nonfinite_parameter", "uninitialised_memory", "nonfinite_number", "scaler", "overflow"),
}
FAULTS = [
    fault
    for fault in (*FORWARD.faults, *BACKWARD.faults, *UPDATE.faults)
    if fault.expected["reason"] not in NOT_OPERATIONS
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_located_operation_kept_safe_at_its_line_does_no_harm(fault):
    found = train(fault.step, fault.model())
    net, losses = fault.model(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with quiet(), SafeOperations([found["operation"]], sources=[found["source"]]) as safe:
        fault.step(net, optimizer, batch_of(0), losses.append)
    assert safe.repaired > 0
    assert all(loss.isfinite().all() for loss in losses)
    assert all(p.isfinite().all() for p in net.parameters())


def small_training(context):
    net, losses = Net(), []
    optimizer = torch.optim.Adam(net.parameters())
    torch.manual_seed(1)
    with context:
        for index in range(5):
            optimizer.zero_grad()
            p = F.dropout(net(batch_of(index)), 0.3).softmax(1)
            loss = -(p.log() * p.sqrt()).mean() / p.norm()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [*losses, *net.parameters()]


def test_inside_its_domain_nothing_changes_by_a_single_bit():
    names = ["log", "sqrt", "div", "softmax", "mean", "norm", "addcdiv", "cross_entropy"]
    plain = small_training(quiet())
    assert all(map(torch.equal, plain, small_training(SafeOperations(names))))


def test_only_the_operation_at_the_named_line_is_kept_safe():
    zero = torch.zeros(3)
    with SafeOperations(["log"], sources=["elsewhere.py:1"]):
        assert zero.log().isinf().all()
    with SafeOperations(["log"]):
        assert zero.log().isfinite().all()
        assert zero.reciprocal().isinf().all()


def test_only_the_elements_outside_of_the_domain_change():
    x = torch.tensor([0.0, -1.0, 0.5, 2.0], requires_grad=True)
    with SafeOperations(["log"]):
        y = x.log()
        y.sum().backward()
    assert torch.equal(y[2:], torch.tensor([0.5, 2.0]).log())
    assert torch.equal(x.grad, torch.tensor([0.0, 0.0, 2.0, 0.5]))


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("log_of_zero", lambda x: x.log()),
        ("sqrt_at_zero", lambda x: x.sqrt()),
        ("zero_over_zero", lambda x: x / x),
        ("division_by_zero", lambda x: 1 / x),
        ("exp_overflow", lambda x: (x + 1e3).exp()),
        ("masked_row", lambda x: x.masked_fill(x == 0, float("-inf")).softmax(0)),
        ("pow", lambda x: x**0.5),
        ("acos_at_one", lambda x: (x + 1).acos()),
        ("norm_at_zero", lambda x: torch.hypot(x, x)),
        ("normalize", lambda x: F.normalize(x.half(), dim=0)),
        ("cross_entropy", lambda x: F.cross_entropy(x[None], torch.tensor([-100]))),
        ("std_of_one", lambda x: x[:1].std()),
        ("logit_at_edge", lambda x: x.logit()),
    ],
)
def test_a_reason_or_a_function_names_its_operations(name, operation):
    x = torch.zeros(4, requires_grad=True)
    with quiet(), SafeOperations([name]):
        y = operation(x)
        y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("name", "message"),
    [("lgo", "did you mean 'log'"), ("overflow", "name the operation")],
)
def test_a_name_that_means_no_operation_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        SafeOperations([name])


def test_a_training_trains_through_when_the_guilty_operation_is_kept_safe():
    def distances(steps, context):
        net = Net()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        losses = []
        with context:
            for index in range(steps):
                a, b = batch_of(2 * index), batch_of(2 * index + 1)
                if index == 3:
                    b[1] = a[1]
                distance = (net(a) - net(b)).square().sum(1).sqrt()
                loss = (distance - 1).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    assert distances(8, quiet())[-1] != distances(8, quiet())[-1]  # NaN
    losses = distances(60, SafeOperations(["sqrt"]))
    assert losses[-1] < losses[0] / 2
