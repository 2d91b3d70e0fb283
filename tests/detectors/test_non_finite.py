from __future__ import annotations

import dataclasses
import math

import pytest

from stabexp.detectors.non_finite import NonFinite

NAN, INF = math.nan, math.inf
FINE = {"grad_norm": 1.0, "param_norm": 10.0}
OVERFLOW = {"grad_norm": INF, "nonfinite_grads": 4, "loss_scale": 65536.0, "skipped": True}


def run(records, *changes):
    """Ten healthy steps, then one step for each set of changed fields."""
    steps = records(*([2.0] * (10 + len(changes))))
    new = [{**FINE, **change} for change in ({},) * 10 + changes]
    return [dataclasses.replace(step, **change) for step, change in zip(steps, new, strict=True)]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([{}], id="a healthy step"),
        pytest.param([OVERFLOW], id="a step the scaler skipped"),
        pytest.param([OVERFLOW] * 20, id="a scaler that looks for its scale"),
        pytest.param([{"skipped": True, "grad_norm": INF}], id="a step an intervention left out"),
        pytest.param([{"skipped": True}] * 40, id="forty finite updates left out on purpose"),
        pytest.param([{"loss": NAN}], id="one batch without a target"),
        pytest.param([{"loss": NAN, "grad_norm": 0.0}] * 2, id="two such batches"),
        pytest.param([{"loss": NAN}, {}, {"loss": NAN}, {}, {"loss": NAN}], id="one now and then"),
        pytest.param([{"loss": NAN, **OVERFLOW}], id="an activation that overflowed once"),
    ],
)
def test_stays_silent_on(records, changes):
    assert NonFinite().check(run(records, *changes)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"nonfinite_params": 2}], "2 parameter(s) hold NaN or Inf after step 10"),
        ([{"param_norm": NAN}], "1 parameter(s) hold"),
        ([{"grad_norm": NAN}], "1 gradient(s) of step 10 held NaN or Inf and were used"),
        ([{"grad_norm": INF, "nonfinite_grads": 3}], "3 gradient(s) of step 10"),
        ([{"nonfinite_grads": 1, "loss_scale": 1024.0}], "1 gradient(s) of step 10"),
        ([OVERFLOW] * 21, "21 updates in a row were skipped"),
        ([{"loss": NAN}] * 3, "the loss was nan for 3 step(s) in a row"),
        ([{"loss": NAN}, {"loss": INF}, {"loss": INF}], "the loss was inf for 3"),
    ],
)
def test_speaks_on(records, changes, message):
    assert message in NonFinite().check(run(records, *changes)).message


def test_norms_that_were_never_recorded_are_no_finding(records):
    steps = records(2.0, 1.9, 1.8, grad_norms=[NAN] * 3)
    assert NonFinite().check(steps) is None


def test_patience_of_one_takes_a_single_loss(records):
    assert NonFinite(patience=1).check(run(records, {"loss": NAN})) is not None
