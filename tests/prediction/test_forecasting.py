"""Trends are warned of long before they break anything, and what healthy runs do is not."""

from __future__ import annotations

import json
import math

import pytest
from prediction.curves import grows, noisy, records

from stabexp.prediction import Forecaster, crossing, warnings_in

HEAD = {"body": lambda step: 10.0, "head": grows(5.0, rate=0.01)}
QKV = {"blocks.0.attention.qkv": grows(5.0, rate=0.01), "head": lambda step: 10.0}
TRENDS = [
    ("rate_ramp", {"lr": grows(1e-3, rate=0.02)}),
    ("weight_growth", {"param_norm": grows(10.0, rate=0.01)}),
    ("logit_drift", {"layers": HEAD}),
    ("attention_growth", {"layers": QKV}),
    ("attention_growth", {"metrics": {"attention/largest_logit": grows(20.0, rate=0.04)}}),
    (
        "half_headroom",
        {"scale": 1024.0, "metrics": {"half/activation_absmax": grows(900.0, rate=0.03)}},
    ),
    ("edge_of_stability", {"grad_norm": noisy(grows(1.0, rate=0.5, since=200), by=0.1)}),
]


@pytest.mark.parametrize(
    ("kind", "curves"), TRENDS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(TRENDS)]
)
def test_a_trend_is_warned_of_once_and_by_its_name(kind, curves):
    found = warnings_in(records(260, **curves))
    assert [each.kind for each in found] == [kind]
    assert found[0].step > 150
    assert found[0].crash > found[0].step
    assert found[0].value > found[0].usual
    json.dumps(found[0].figures())


@pytest.mark.parametrize(
    "curves",
    [
        pytest.param({}, id="nothing happens"),
        pytest.param({"lr": lambda step: 1e-3 * min(1.0, step / 200)}, id="a long warmup"),
        pytest.param({"lr": lambda step: 1e-3 * (1 + math.cos(step / 96))}, id="cosine to zero"),
        pytest.param({"lr": lambda step: 1e-5 + 1e-3 * (1 - step % 100 / 100)}, id="warm restarts"),
        pytest.param({"lr": lambda step: 1e-3 * 0.1 ** (step // 100)}, id="the rate drops"),
        pytest.param(
            {"grad_norm": noisy(lambda step: 1.0 if step < 200 else 6.0, by=0.3)}, id="new data"
        ),
        pytest.param({"grad_norm": noisy(lambda step: 1.0, by=0.8)}, id="noisy gradients"),
        pytest.param(
            {"scale": 1024.0, "metrics": {"half/activation_absmax": noisy(lambda step: 3e4)}},
            id="little headroom that stays",
        ),
        pytest.param(
            {"metrics": {"half/activation_absmax": grows(900.0, rate=0.03)}},
            id="bfloat16 holds it",
        ),
        pytest.param({"grad_norm": lambda step: math.nan}, id="no gradient norm recorded"),
        pytest.param({"lr": lambda step: math.nan}, id="no rate recorded"),
    ],
)
def test_it_stays_silent_on(curves):
    assert warnings_in(records(**curves)) == ()


def test_the_predicted_step_is_when_an_activation_leaves_float16():
    curve = grows(900.0, rate=0.03)
    found = warnings_in(records(scale=1.0, metrics={"half/activation_absmax": curve}))[0]
    truth = next(step for step in range(1000) if curve(step) >= 65504)
    assert truth - found.step > 30
    assert found.crash == pytest.approx(truth, abs=8)


@pytest.mark.parametrize("cut", [1, 100, 165, 200])
def test_a_forecaster_goes_on_from_its_state_as_if_it_had_never_stopped(cut):
    steps = records(lr=grows(1e-3, rate=0.02), param_norm=grows(10.0, rate=0.01), layers=HEAD)
    first, second = Forecaster(), Forecaster()
    whole = [first.observe(record) for record in steps[:cut]]
    # through JSON: a checkpoint holds plain values
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    whole += [second.observe(record) for record in steps[cut:]]
    assert tuple(each for each in whole if each is not None) == warnings_in(steps)
    assert any(whole[165:])


@pytest.mark.parametrize(
    ("losses", "left"),
    [
        ([1.0] * 60 + [1.6] * 3, 60),
        ([1.0] * 60 + [1.6, 1.6, 1.0] * 3, None),
        ([1.0] * 60 + [math.nan, math.inf, 2.0], 60),
        ([1.0] * 40 + [1.6] * 30, 45),
        ([3.0] * 60 + [1.0] * 30 + [1.6] * 3, 90),
    ],
)
def test_a_loss_has_left_at_the_first_of_three_above_its_lowest_level(losses, left):
    assert crossing(losses) == left
