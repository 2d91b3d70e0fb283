"""MLflow gets a readable, cheap view of a run, and the interesting steps whole."""

from __future__ import annotations

import math

import pytest

from stabexp.records import StepRecord
from stabexp.tracking.step_metrics import StepSampler, metric_rows


def step(number: int, **fields) -> StepRecord:
    given = {"time": 1.7e9 + number, "loss": 2.0, "lr": 1e-3, "grad_norm": 10.0}
    return StepRecord(step=number, **(given | fields))


def sent(records) -> list[int]:
    records = list(records)
    sampler = StepSampler(records[0].step)
    chosen = [r.step for record in records for r in sampler.take(record)]
    return sorted(chosen + [r.step for r in sampler.rest()])


@pytest.mark.parametrize(
    ("length", "most"), [(100, 100), (2000, 2000), (20_000, 3800), (130_000, 5200)]
)
def test_a_run_sends_at_most_about_5000_points_per_metric(length, most):
    steps = sent(step(n) for n in range(length))
    assert len(steps) == len(set(steps)) <= most
    assert steps[: min(length, 2000)] == list(range(min(length, 2000)))
    assert steps[-100:] == list(range(length - 100, length))


def test_the_steps_around_a_nonfinite_number_are_sent_whole():
    steps = sent(step(n, loss=math.nan if n == 9001 else 1.0) for n in range(12_000))
    assert set(range(8905, 9050)) <= set(steps)


def test_a_run_that_stays_nonfinite_is_thinned_again():
    steps = sent(step(n, loss=1.0 if n < 3000 else math.nan) for n in range(20_000))
    assert len(steps) < 4000


def test_a_trial_is_counted_from_its_own_first_step():
    assert sent(step(n) for n in range(500_000, 500_900)) == list(range(500_000, 500_900))


def keys(record, kind="run", *, clipped=False):
    return {row.key: row.value for row in metric_rows(record, kind, clipped=clipped)}


def test_only_finite_numbers_are_sent():
    record = step(1, loss=math.inf, grad_norm=math.nan, metrics={"acc": math.nan, "kl": 0.5})
    assert keys(record) == {"lr": 1e-3, "nonfinite": 2, "kl": 0.5}


def test_a_run_gets_everything_measured():
    record = step(
        1,
        update_ratio=1e-3,
        param_norm=5.0,
        loss_scale=1024.0,
        clip_coefficient=0.5,
        batch_size=32,
        seconds=0.5,
        layers={"fc.0": {"grad_norm": 2.0}},
    )
    assert keys(record, clipped=True) == {
        "loss": 2.0,
        "loss_log10": math.log10(2.0),
        "grad_norm": 10.0,
        "grad_norm_log10": 1.0,
        "lr": 1e-3,
        "update_ratio": 1e-3,
        "param_norm": 5.0,
        "loss_scale": 1024.0,
        "clip_coefficient": 0.5,
        "samples_per_second": 64.0,
        "layers/fc.0/grad_norm": 2.0,
    }


def test_a_trial_gets_the_curves_that_are_compared():
    record = step(1, update_ratio=1e-3, metrics={"acc": 1.0})
    assert set(keys(record, "trial")) == {
        "loss",
        "loss_log10",
        "grad_norm",
        "grad_norm_log10",
        "lr",
    }
