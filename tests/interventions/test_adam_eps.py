"""A dose is Adam built with that epsilon."""

from __future__ import annotations

import pytest
from interventions.hand_written import ADAMS, assert_same_bits, built_with, course, differ

from stabexp.errors import ConfigError


@pytest.mark.parametrize("optimizer", ADAMS)
def test_a_dose_is_the_epsilon_from_the_start(optimizer):
    written_out = course(optimizer, hand=built_with("eps", 1e-3), scaled=True)
    assert_same_bits(written_out, course(optimizer, interventions={"adam_eps": 1e-3}, scaled=True))
    assert differ(written_out, course(optimizer, scaled=True))


@pytest.mark.parametrize("optimizer", ADAMS)
def test_the_optimizers_own_epsilon_changes_nothing(optimizer):
    assert_same_bits(course(optimizer), course(optimizer, interventions={"adam_eps": 1e-8}))


def test_an_optimizer_without_an_epsilon_is_refused():
    with pytest.raises(ConfigError, match="SGD has no option"):
        course("sgd", interventions={"adam_eps": 1e-3})
