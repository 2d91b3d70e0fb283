"""Records are compared to the last bit, in a fixed order of fields."""

from __future__ import annotations

import dataclasses

import pytest

from stabexp.comparison import first_differing_record
from stabexp.comparison.step_records import shared_steps
from stabexp.records import StepRecord

NAN = float("nan")


def record(step, **changes):
    plain = StepRecord(step=step, time=0.0, loss=1.0, lr=0.1, grad_norm=2.0, digest="ab")
    return dataclasses.replace(plain, **changes)


RUN = [record(step) for step in range(5)]


@pytest.mark.parametrize(
    ("step", "changes", "field"),
    [
        pytest.param(2, {"loss": 1.0000000000000002}, "loss", id="one bit of the loss"),
        pytest.param(0, {"digest": "ac"}, "digest", id="only the parameters"),
        pytest.param(4, {"lr": 0.2}, "lr", id="only the rate"),
        pytest.param(3, {"lr": 0.2, "grad_norm": 1.0}, "grad_norm", id="the earlier field"),
        pytest.param(1, {"param_norm": 3.0}, "param_norm", id="a number for NaN"),
        pytest.param(1, {"loss": NAN}, "loss", id="NaN for a number"),
    ],
)
def test_the_first_differing_step_and_field_are_named(step, changes, field):
    other = [*RUN[:step], record(step, **changes), *RUN[step + 1 :]]
    found = first_differing_record(RUN, other)
    assert found is not None
    assert (found.step, found.field) == (step, field)
    assert str(found.second) == str(changes[field])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(RUN, RUN, id="equal"),
        pytest.param(RUN, RUN[:2], id="one ended earlier"),
        pytest.param(RUN, [record(9, loss=7.0)], id="no step in common"),
        pytest.param([record(0, loss=NAN)], [record(0, loss=NAN)], id="NaN in both"),
        pytest.param([record(0)], [record(0, time=9.0, seconds=1.0)], id="only the clock"),
    ],
)
def test_nothing_differs_in(first, second):
    assert first_differing_record(first, second) is None


def test_zero_and_minus_zero_are_not_the_same():
    assert first_differing_record([record(0, loss=0.0)], [record(0, loss=-0.0)]) is not None


def test_shared_steps_are_counted():
    assert shared_steps(RUN, [record(3), record(4), record(5)]) == 2
