"""Optimizers and schedules by name: hand-checked rates, and what does not fit together."""

from __future__ import annotations

import pydantic
import pytest
import torch

from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        pytest.param({}, {0: 1, 7: 1, 5000: 1}, id="constant"),
        pytest.param(
            {"warmup_steps": 4}, {0: 0.25, 1: 0.5, 2: 0.75, 3: 1, 4: 1, 99: 1}, id="warmup"
        ),
        pytest.param(
            {"name": "linear"}, {0: 1, 250: 0.75, 500: 0.5, 999: 0.001, 1000: 0}, id="linear"
        ),
        pytest.param(
            {"name": "linear", "min_ratio": 0.2}, {0: 1, 500: 0.6, 1000: 0.2, 2000: 0.2}, id="floor"
        ),
        pytest.param(
            {"name": "cosine", "warmup_steps": 500},
            {0: 0.002, 249: 0.5, 499: 1, 500: 1, 750: 0.5, 1000: 0, 1200: 0},
            id="500 steps of linear warmup, then cosine",
        ),
        pytest.param(
            {"name": "cosine", "min_ratio": 0.1},
            {0: 1, 250: 0.1 + 0.9 * 0.8535533905932737, 500: 0.55, 1000: 0.1},
            id="cosine to a tenth",
        ),
        pytest.param(
            {"name": "one_cycle", "peak": 0.5},
            {0: 0.04, 250: 0.52, 500: 1, 750: 0.5, 1000: 0},
            id="one cycle",
        ),
        pytest.param(
            {"name": "linear", "warmup_steps": 1000}, {0: 0.001, 999: 1, 1000: 1}, id="all warmup"
        ),
    ],
)
def test_the_rate_factor_over_a_thousand_steps(settings, factors):
    schedule = ScheduleSettings(**settings)
    for step, factor in factors.items():
        assert schedule.factor(step, 1000) == pytest.approx(factor, abs=1e-12)


@pytest.mark.parametrize("name", ["constant", "linear", "cosine", "one_cycle"])
@pytest.mark.parametrize("total_steps", [0, 1, 2, 17])
def test_the_factor_stays_between_zero_and_one(name, total_steps):
    schedule = ScheduleSettings(name=name)
    assert all(0 <= schedule.factor(step, total_steps) <= 1 for step in range(40))


def test_the_built_scheduler_sets_the_rates_of_the_table_and_resumes():
    schedule = ScheduleSettings(name="cosine", warmup_steps=3)

    def fresh():
        optimizer = OptimizerSettings(name="sgd", lr=0.5).build(
            [torch.zeros(2, requires_grad=True)]
        )
        return optimizer, schedule.build(optimizer, 10)

    optimizer, scheduler = fresh()
    rates = []
    for step in range(10):
        if step == 4:
            saved = (optimizer.state_dict(), scheduler.state_dict())
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == [0.5 * schedule.factor(step, 10) for step in range(10)]
    optimizer, scheduler = fresh()
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5 * schedule.factor(5, 10)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"name": "sgd", "momentum": 0.9, "nesterov": True}, torch.optim.SGD),
        ({"name": "adam", "betas": [0.9, 0.95], "eps": 1e-6}, torch.optim.Adam),
        ({"name": "adamw", "weight_decay": 0.1, "foreach": True}, torch.optim.AdamW),
        ({"name": "adamw", "fused": True, "foreach": False}, torch.optim.AdamW),
        ({"name": "sgd", "foreach": False}, torch.optim.SGD),
    ],
)
def test_the_built_optimizer_has_the_settings_and_steps(settings, kind):
    weight = torch.ones(3, requires_grad=True)
    optimizer = OptimizerSettings(lr="3e-2", **settings).build([weight])
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.03
    for key, value in settings.items():
        if key != "name":
            assert group[key] == (tuple(value) if isinstance(value, list) else value)
    weight.square().sum().backward()
    optimizer.step()
    assert (weight < 1).all()


def test_parameter_groups_keep_their_own_rates():
    groups = [{"params": [torch.ones(1)], "lr": 0.5}, {"params": [torch.ones(1)]}]
    optimizer = OptimizerSettings(name="sgd", lr=0.1).build(groups)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "adam", "momentum": 0.9}, "momentum belongs to sgd; for adam set betas"),
        ({"name": "adamw", "nesterov": True}, "nesterov belongs to sgd"),
        ({"name": "sgd", "nesterov": True}, "nesterov needs momentum; set momentum: 0.9"),
        ({"name": "sgd", "betas": [0.8, 0.9]}, "betas belong to adam and adamw; for sgd set"),
        ({"name": "sgd", "eps": 1e-6}, "eps belongs to adam and adamw; remove it"),
        ({"foreach": True, "fused": True}, "foreach and fused exclude each other; keep one"),
        ({"betas": [0.9, 1.0]}, r"betas \[0.9, 1.0\] must lie in \[0, 1\)"),
        ({"lr": 0}, "greater than 0"),
        ({"lr": "inf"}, "finite number"),
        ({"name": "lion"}, "'sgd', 'adam' or 'adamw'"),
    ],
)
def test_impossible_optimizers_are_refused(settings, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        OptimizerSettings(**settings)


def test_warmup_and_one_cycle_exclude_each_other():
    with pytest.raises(pydantic.ValidationError, match="set peak instead of warmup_steps"):
        ScheduleSettings(name="one_cycle", warmup_steps=10)


def test_every_setting_survives_a_round_trip():
    for settings in [
        OptimizerSettings(name="sgd", momentum=0.9),
        OptimizerSettings(),
        ScheduleSettings(name="one_cycle"),
    ]:
        assert type(settings)(**settings.model_dump(mode="json")) == settings
