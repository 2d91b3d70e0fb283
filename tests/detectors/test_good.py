from __future__ import annotations

import random

import pytest

from stabexp.detectors.good import last_good_step

RNG = random.Random(1)
CALM = [2.0 + 0.1 * RNG.uniform(-1, 1) for _ in range(100)]
NORMS = [1.0 + 0.1 * RNG.uniform(-1, 1) for _ in range(100)]


@pytest.mark.parametrize(
    ("onset", "candidates", "good"),
    [
        pytest.param(90, [0, 40, 80], 80, id="the latest"),
        pytest.param(90, [80, 0, 40], 80, id="in any order"),
        pytest.param(90, [0, 87, 88], 87, id="three steps before the onset"),
        pytest.param(90, [0, 88, 95], 0, id="the others are too late"),
        pytest.param(1, [0, 10], 0, id="the start is always good"),
        pytest.param(90, [88], None, id="none is early enough"),
        pytest.param(90, [], None, id="there is none"),
    ],
)
def test_the_last_good_step_is(records, onset, candidates, good):
    steps = records(*CALM, grad_norms=NORMS)
    assert last_good_step(steps, onset, candidates) == good


@pytest.mark.parametrize(("bad", "good"), [(74, 80), (75, 40), (79, 40), (80, 80)])
def test_the_five_steps_before_a_checkpoint_must_be_calm(records, bad, good):
    losses = [9.0 if step == bad else loss for step, loss in enumerate(CALM)]
    assert last_good_step(records(*losses, grad_norms=NORMS), 90, [0, 40, 80]) == good


@pytest.mark.parametrize("norm", [50.0, 1e-6], ids=["large", "vanished"])
def test_an_unusual_gradient_norm_disqualifies(records, norm):
    norms = [norm if step == 77 else usual for step, usual in enumerate(NORMS)]
    assert last_good_step(records(*CALM, grad_norms=norms), 90, [0, 40, 80]) == 40


def test_a_falling_loss_does_not(records):
    losses = [*CALM[:75], *(2.0 - 0.2 * k for k in range(10)), *[0.2] * 15]
    assert last_good_step(records(*losses, grad_norms=NORMS), 95, [0, 80]) == 80


def test_a_checkpoint_whose_steps_are_not_in_view_passes(records):
    steps = records(*CALM, grad_norms=NORMS)[60:]
    assert last_good_step(steps, 62, [0, 20]) == 20
