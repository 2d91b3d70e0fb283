"""A dose names operations, and where in the code they are kept safe."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stabexp.interventions import build
from stabexp.training.changes import Changes


def test_a_dose_lists_operations():
    (item,) = build({"safe_operation": "log@train.py:31, div"})
    assert item.safe_operations() == ("log@train.py:31", "div")


def gradients(given, *, values):
    """Return the gradients of a log, computed between the two ends of a batch."""
    model = nn.Linear(1, 1)
    changes = Changes(build(given))
    changes.begin(model, torch.optim.SGD(model.parameters(), 0.1), scratch=True)
    x = torch.tensor(values, requires_grad=True)
    changes.batch_begins(x)
    x.log().sum().backward()
    changes.batch_ends()
    assert torch.zeros(1).log().item() == -torch.inf  # nothing is left in force
    changes.end()
    return x.grad


def test_a_log_of_0_has_a_finite_gradient_while_the_loop_works_on_a_batch():
    assert not gradients({}, values=[0.0, 2.0]).isfinite().all()
    assert gradients({"safe_operation": "log"}, values=[0.0, 2.0]).isfinite().all()


@pytest.mark.parametrize("dose", ["log", "log@elsewhere.py:3", "sqrt"])
def test_an_operation_that_stays_inside_its_domain_is_the_control(dose):
    control = gradients({}, values=[0.3, 2.0, 1e-30])
    assert torch.equal(control, gradients({"safe_operation": dose}, values=[0.3, 2.0, 1e-30]))


def test_a_place_in_the_code_decides_where_it_holds():
    elsewhere = gradients({"safe_operation": "log@elsewhere.py:3"}, values=[0.0])
    assert not elsewhere.isfinite().all()
    line = gradients.__code__.co_firstlineno + 7
    assert (
        gradients({"safe_operation": f"log@test_safe_operation.py:{line}"}, values=[0.0])
        .isfinite()
        .all()
    )
