"""A rate dose is training with that rate, under any schedule."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import ADAMW, COSINE, SGD, train

from stabexp.bisection.replay import first_mismatch


@pytest.mark.parametrize("optimizer", [ADAMW, SGD, {**SGD, "momentum": 0.9}, {"name": "adam"}])
@pytest.mark.parametrize("schedule", [{}, COSINE, {"name": "one_cycle"}])
def test_half_the_rate_is_training_with_half_the_rate(optimizer, schedule):
    half = {**optimizer, "lr": optimizer.get("lr", 1e-3) / 2}
    written_out = train(optimizer=half, schedule=schedule)
    changed = train(optimizer=optimizer, schedule=schedule, interventions={"learning_rate": 0.5})
    assert first_mismatch(written_out[0], changed[0]) == (None, "")
    assert [r.lr for r in changed[0]] == [r.lr for r in written_out[0]]


@pytest.mark.parametrize("optimizer", [ADAMW, SGD])
def test_another_factor_than_a_power_of_two_agrees_up_to_rounding(optimizer):
    written_out = train(optimizer={**optimizer, "lr": 0.3 * optimizer["lr"]}, schedule=COSINE)
    changed = train(optimizer=optimizer, schedule=COSINE, interventions={"learning_rate": 0.3})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)
        assert other.loss == pytest.approx(one.loss, rel=1e-5)


def test_rate_zero_freezes_the_weights():
    records, _ = train(interventions={"learning_rate": 0.0})
    assert {record.update_ratio for record in records} == {0.0}
    assert len({record.param_norm for record in records}) == 1
