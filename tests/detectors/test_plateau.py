from __future__ import annotations

import pytest

from stabexp.detectors.plateau import Plateau

FLAT = [2.3, 2.31, 2.29] * 80
LEARNS = [2.3 - 0.005 * step for step in range(240)]


@pytest.mark.parametrize(
    ("detector", "losses"),
    [
        pytest.param(Plateau(), LEARNS, id="a run that learns"),
        pytest.param(Plateau(), FLAT[:199], id="too short to say"),
        pytest.param(Plateau(expected=1.5), LEARNS, id="as far as expected"),
        pytest.param(Plateau(expected=1.0), LEARNS[:200], id="before it is asked for"),
        pytest.param(Plateau(expected=2.3), FLAT, id="flat, but where it should be"),
    ],
)
def test_stays_silent_on(records, detector, losses):
    assert detector.check(records(*losses)) is None


def test_speaks_when_nothing_moves(records):
    found = Plateau().check(records(*FLAT))
    assert (found.pattern, found.onset) == ("plateau", 40)


def test_speaks_when_the_run_is_far_behind(records):
    found = Plateau(expected=1.0).check(records(*FLAT))
    assert (found.pattern, found.onset) == ("plateau", 0)
    assert found.limit == pytest.approx(1.0 + 0.4 * 1.3)
