"""A dose is Adam built with these decays of its moments."""

from __future__ import annotations

import pytest
from interventions.hand_written import ADAMS, assert_same_bits, built_with, course, differ

from stabexp.errors import ConfigError

DOSE = {"betas": "0.5,0.9"}


@pytest.mark.parametrize("optimizer", ADAMS)
def test_a_dose_is_the_decays_from_the_start(optimizer):
    written_out = course(optimizer, hand=built_with("betas", (0.5, 0.9)), scaled=True)
    assert_same_bits(written_out, course(optimizer, interventions=DOSE, scaled=True))
    assert differ(written_out, course(optimizer, scaled=True))


@pytest.mark.parametrize("optimizer", ADAMS)
def test_the_optimizers_own_decays_change_nothing_beside_its_own_epsilon(optimizer):
    given = {"adam_eps": 1e-8, "betas": "0.9,0.999"}
    assert_same_bits(course(optimizer), course(optimizer, interventions=given))


def test_an_optimizer_without_decays_is_refused():
    with pytest.raises(ConfigError, match="SGD has no option"):
        course("sgd", interventions=DOSE)
