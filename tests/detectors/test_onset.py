from __future__ import annotations

import math
import random

import pytest

from stabexp.detectors.onset import find_onset

NAN = math.nan


def noisy(count, level=1.0, noise=0.05, seed=0):
    rng = random.Random(seed)
    return [level * (1 + noise * rng.gauss(0, 1)) for _ in range(count)]


@pytest.mark.parametrize(
    ("losses", "onset"),
    [
        pytest.param([*noisy(100), *[5.0] * 5], 100, id="a jump"),
        pytest.param([*noisy(100), 5.0, 1.0, 1.0, 6.0, 7.0, NAN], 100, id="two normal between"),
        pytest.param([*noisy(100), 5.0, 1.0, 1.0, 1.0, 7.0, NAN], 104, id="three normal between"),
        pytest.param([*noisy(100), *[NAN] * 5], 100, id="no number"),
        pytest.param([*noisy(100), *[3.0] * 80], 100, id="long after the jump"),
        pytest.param(noisy(100), 99, id="nothing looks wrong"),
        pytest.param([2.1, 2.0, 1.9, 8734.5, NAN], 3, id="in the first steps"),
        pytest.param([2.1, NAN, NAN], 1, id="at the second step"),
        pytest.param([NAN, NAN, NAN], 0, id="from the start"),
        pytest.param([30.0, 35.0, 33.0, 40.0], 0, id="no healthy baseline"),
    ],
)
def test_the_onset_of(records, losses, onset):
    assert find_onset(records(*losses), len(losses) - 1) == onset


def test_a_slow_rise_begins_where_it_leaves_the_noise(records):
    losses = [*noisy(100), *(1.03**k for k in range(80))]
    assert 100 <= find_onset(records(*losses), 179) <= 112


def test_the_gradient_norm_can_begin_it(records):
    norms = [*noisy(100, noise=0.2), *[30.0] * 6]
    steps = records(*noisy(103), 5.0, 6.0, 7.0, grad_norms=norms)
    assert find_onset(steps, 105) == 100


def test_steps_after_the_detection_do_not_matter(records):
    steps = records(*noisy(100), *[5.0] * 5, *noisy(40))
    assert find_onset(steps, 104) == 100


def test_norms_that_were_not_recorded_do_not_matter(records):
    steps = records(*noisy(100), *[5.0] * 5, grad_norms=[NAN] * 105)
    assert find_onset(steps, 104) == 100


def test_a_detection_before_all_records_is_an_error(records):
    with pytest.raises(ValueError, match="no record at or before step -1"):
        find_onset(records(1.0, 2.0), -1)
