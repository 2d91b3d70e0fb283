"""Inside the window rate and clip are eased; after it they stay so, or come back on a ramp."""

from __future__ import annotations

import pytest
import torch
from stabilisers.stabilised import STEPS, stabilised

RATE = 0.02


def rising(run):
    """Train at a rate that rises by a tenth of its first value with every step."""
    torch.manual_seed(0)
    x = torch.randn(96, 4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 + step / 10)
    data = torch.utils.data.TensorDataset(x, 9 * x[:, :1])
    steps = run.steps(data, model=model, optimizer=optimizer, scheduler=schedule, batch_size=8)
    for a, b in steps:
        loss = (model(a) - b).square().mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def rates(given):
    """Return what each step's rate was multiplied by."""
    records, _, _ = stabilised(rising, {"danger_window": given})
    return [round(r.lr / (RATE * (1 + r.step / 10)), 6) for r in records]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"first": 2, "last": 5, "rate": 0.25}, [1, 1, *[0.25] * 6]),
        (
            {"first": 2, "last": 5, "rate": 0.25, "ramp": 2},
            [1, 1, *[0.25] * 3, round(0.25 ** (2 / 3), 6), round(0.25 ** (1 / 3), 6), 1],
        ),
        ({"first": 2, "last": 5, "rate": 0.25, "ramp": 0}, [1, 1, *[0.25] * 3, 1, 1, 1]),
        ({"first": 0, "last": 9, "cap": True}, [round(10 / (10 + n), 6) for n in range(STEPS)]),
    ],
)
def test_the_rate_is_eased_inside_and_comes_back_where_asked(given, expected):
    assert rates(given) == expected


def test_gradients_are_clipped_inside_and_free_again_after_the_ramp():
    given = {"first": 2, "last": 4, "clip": 0.5, "ramp": 1}
    plain, _, _ = stabilised(rising)
    records, _, events = stabilised(rising, {"danger_window": given})
    assert [r.loss for r in records[:3]] == [r.loss for r in plain[:3]]
    for record in records[2:4]:
        assert record.clip_coefficient == pytest.approx(0.5 / record.grad_norm)
    assert records[4].clip_coefficient == pytest.approx(min(1.0, 5.0 / records[4].grad_norm))
    assert [r.clip_coefficient for r in records if r.step not in (2, 3, 4)] == [1.0] * (STEPS - 3)
    assert [(event["step"], event["event"]) for event in events] == [
        (2, "began"),
        (4, "passed"),
        (5, "given back"),
    ]
