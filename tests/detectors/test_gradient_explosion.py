from __future__ import annotations

import math

import pytest

from stabexp.detectors.gradient_explosion import GradientExplosion

CALM = [1.0, 1.5, 0.8, 2.0, 1.2] * 12


@pytest.mark.parametrize(
    "norms",
    [
        pytest.param([*CALM, 5000.0], id="one step, which clipping is for"),
        pytest.param([*CALM, *[90.0] * 9], id="large for this run, but below 100"),
        pytest.param([*[400.0] * 60, *[4000.0] * 9], id="ten times the large norms of this run"),
        pytest.param([1.0, 1.0, *[500.0] * 5], id="500 in the first steps"),
        pytest.param([9000.0] * 7, id="norms that were large from the start"),
        pytest.param([*CALM, *[math.inf] * 9], id="infinite, which another detector reports"),
        pytest.param([math.nan] * 60, id="norms that were not recorded"),
    ],
)
def test_stays_silent_on(records, norms):
    steps = records(*[1.0] * len(norms), grad_norms=norms)
    assert GradientExplosion().check(steps) is None


@pytest.mark.parametrize(
    ("norms", "limit"),
    [
        pytest.param([*CALM, *[200.0] * 5], 100.0, id="the absolute limit"),
        pytest.param([*[40.0] * 60, *[2000.0] * 5], 1200.0, id="the run's own limit"),
        pytest.param([1.0, 1.0, *[1500.0] * 5], 1000.0, id="the limit of the first steps"),
    ],
)
def test_speaks_on(records, norms, limit):
    found = GradientExplosion().check(records(*[1.0] * len(norms), grad_norms=norms))
    assert found is not None
    assert found.limit == limit
