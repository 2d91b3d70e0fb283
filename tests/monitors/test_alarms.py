"""Which figures are told as alarms, and which are a model's own way."""

from __future__ import annotations

import random

import pytest

from stabexp.monitors.alarms import AlarmWatch
from stabexp.records import StepRecord


def record(step, grad_norm=1.0, **values):
    return StepRecord(step=step, time=0.0, lr=0.1, **{"loss": 1.0, **values}, grad_norm=grad_norm)


def healthy(kind, level, steps=30):
    draw = random.Random(0)
    return [{"layers": {"a": {kind: level * draw.uniform(0.5, 2)}}} for _ in range(steps)]


def alarms(steps):
    """Return what is told of these steps, and of the end of the run."""
    watch = AlarmWatch()
    found = [alarm for at, values in enumerate(steps) for alarm in watch.see(record(at, **values))]
    return [*found, *watch.close()], watch


def one(kind, value):
    return {"layers": {"a": {kind: value}}}


@pytest.mark.parametrize(
    ("steps", "name", "at"),
    [
        pytest.param([one("grad_norm", 101.0)], "gradient explodes", 0, id="A6, norm > 100"),
        pytest.param([{"grad_norm": 1001.0}], "gradient explodes", 0, id="B2, total > 1000"),
        pytest.param(
            [one("grad_norm", 9e-9)] * 2, "gradient vanishes", 1, id="A6, 0 < norm < 1e-8"
        ),
        pytest.param([{"grad_norm": 9e-8}] * 10, "gradient vanishes", 9, id="C4, ten norms < 1e-7"),
        pytest.param(
            [one("weight_norm", 9e-7)] * 20, "weights degenerate", 19, id="C4, twenty < 1e-6"
        ),
        pytest.param([one("weight_max", 1.1e6)], "weights too large", 0, id="B1, |w| > 1e6"),
        pytest.param(
            [one("norm_constant", 0.6)], "constant input to a normalisation", 0, id="A4, variance"
        ),
        pytest.param([one("attention_empty", 0.6)], "empty attention rows", 0, id="A4, rows"),
        pytest.param(
            [{"metrics": {"batch/truncated": 1.0}}], "batches cut short", 0, id="B11, truncation"
        ),
        pytest.param(
            [{"metrics": {"ranks/weights_differ": 1.0}}], "processes out of step", 0, id="B10"
        ),
        pytest.param([{"loss": float("nan")}], "not finite", 0, id="A6, NaN in the loss"),
        pytest.param([{"grad_norm": float("nan")}], "not finite", 0, id="A3, NaN in a gradient"),
        pytest.param(
            [{"nonfinite_params": 1, **one("nonfinite_weights", 1.0)}],
            "not finite",
            0,
            id="B15, NaN in weights",
        ),
        pytest.param(
            [*healthy("grad_norm", 0.01), one("grad_norm", 5.0)],
            "gradient explodes",
            30,
            id="far above a run's own small norms, below 100",
        ),
        pytest.param(
            [*healthy("grad_norm", 1.0, steps=7), one("grad_norm", 200.0)],
            "gradient explodes",
            7,
            id="in a short run",
        ),
    ],
)
def test_alarms_about(steps, name, at):
    (found,), _ = alarms(steps)
    assert (found.name, found.step) == (name, at)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(healthy("grad_norm", 400.0), id="norms that are large by nature"),
        pytest.param(healthy("grad_norm", 400.0, steps=6), id="in a short run too"),
        pytest.param([one("grad_norm", 0.0)] * 30, id="the gradient of a frozen layer"),
        pytest.param([one("grad_norm", 5e-9), one("grad_norm", 1.0)] * 9, id="small now and then"),
        pytest.param([one("norm_constant", 0.4)] * 30, id="a batch with padding"),
        pytest.param([one("attention_empty", 0.9)] * 30, id="mostly padding from the start"),
        pytest.param(
            [{"grad_norm": float("inf"), "skipped": True, **one("nonfinite_grads", 9.0)}],
            id="an update that the scaler left out",
        ),
        pytest.param([{"grad_norm": 900.0}], id="a total norm below 1000"),
    ],
)
def test_stays_silent_about(steps):
    assert alarms(steps)[0] == []


def test_one_line_for_all_layers_and_one_more_for_those_that_follow():
    layers = {name: {"grad_norm": 500.0} for name in "abc"}
    found, watch = alarms(
        [
            *({"layers": {name: {"grad_norm": 1.0} for name in "abcd"}} for _ in range(20)),
            {"layers": {**layers, "d": {"grad_norm": 1.0}}},
            {"layers": {"d": {"grad_norm": 90.0}}},
        ]
    )
    assert [(each.layer, each.others) for each in found] == [("a", 2), ("d", 0)]
    (line,) = watch.notices()
    assert line == (
        "gradient explodes at step 20: gradient norm of a and 2 more layers 500 "
        "(limit 50, from the run's own healthy window); later in 1 more"
    )
    assert found[0].to_event()["message"] in line
