"""A budget is steps or time, as people write it."""

from __future__ import annotations

import pytest

from stabexp.bisection.budget import Budget
from stabexp.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "steps", "seconds", "shown"),
    [
        (None, None, None, "no limit"),
        (2000, 2000, None, "2000 steps"),
        ("2000", 2000, None, "2000 steps"),
        ("500 steps", 500, None, "500 steps"),
        ("90s", None, 90.0, "1m30s"),
        ("30m", None, 1800.0, "30m"),
        ("1h", None, 3600.0, "1h"),
        (" 1H 30m ", None, 5400.0, "1h30m"),
        ("1.5h", None, 5400.0, "1h30m"),
        ("0.5s", None, 0.5, "0.5s"),
    ],
)
def test_a_budget_is_read_and_shown(text, steps, seconds, shown):
    budget = Budget.parse(text)
    assert (budget.steps, budget.seconds, str(budget)) == (steps, seconds, shown)
    assert Budget.parse(None if text is None else str(budget)) == budget


@pytest.mark.parametrize("text", ["", "soon", "-5", "30min", "1d", "m30", "1h 2", "1e3", "nan"])
def test_what_is_no_budget_is_refused_with_examples(text):
    with pytest.raises(ConfigError, match=r"for example 2000, 90s, 30m or 1h"):
        Budget.parse(text)


@pytest.mark.parametrize("text", ["0", 0, "0s", "0h0m"])
def test_a_budget_of_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="allows no replay"):
        Budget.parse(text)


@pytest.mark.parametrize(
    ("text", "steps", "seconds", "spent"),
    [
        (None, 10**9, 1e9, False),
        ("100", 99, 1e9, False),
        ("100", 100, 0.0, True),
        ("1m", 10**9, 59.9, False),
        ("1m", 0, 60.0, True),
    ],
)
def test_it_is_spent_when_its_own_measure_is(text, steps, seconds, spent):
    assert Budget.parse(text).spent(steps, seconds) is spent
