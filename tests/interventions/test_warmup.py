"""A warmup dose is the warmup an experiment file could ask for."""

from __future__ import annotations

import pytest
from interventions.training_by_keys import train

from stabexp.bisection.replay import first_mismatch


def test_warmup_is_the_schedules_warmup_bit_for_bit_where_there_was_none():
    written_out = train(schedule={"warmup_steps": 6})
    changed = train(interventions={"warmup": 6})
    assert first_mismatch(written_out[0], changed[0]) == (None, "")
    assert changed[0][0].lr == pytest.approx(0.004 / 6)
    assert changed[0][-1].lr == 0.004


def test_warmup_replaces_a_shorter_one_up_to_rounding():
    written_out = train(schedule={"warmup_steps": 7})
    changed = train(schedule={"warmup_steps": 3}, interventions={"warmup": 7})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)
        assert other.loss == pytest.approx(one.loss, rel=1e-5)


def test_warmup_before_a_decay_is_the_schedules_own_while_it_rises_and_ends_at_the_same_rate():
    written_out = train(schedule={"name": "linear", "warmup_steps": 5})
    changed = train(schedule={"name": "linear"}, interventions={"warmup": 5})
    rates = [r.lr for r in changed[0]]
    assert rates == sorted(rates[:5]) + sorted(rates[5:], reverse=True)
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr <= one.lr or other.step >= 5


def test_warmup_zero_takes_the_ramp_away():
    written_out = train()
    changed = train(schedule={"warmup_steps": 8}, interventions={"warmup": 0})
    for one, other in zip(written_out[0], changed[0], strict=True):
        assert other.lr == pytest.approx(one.lr, rel=1e-15)
