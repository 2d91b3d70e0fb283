"""A trial is cured only when it survived and learned."""

from __future__ import annotations

import math
import random

import pytest
from bisection.scripted_world import DETECTED, GOOD, divergence, step_records
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.judging import judge_trial, level, needed_progress, noise, tolerated
from stabexp.records import Change, StepRecord, TrialSpec

RUN = step_records()
CRASH = divergence()


def spec(from_step=GOOD, **changes):
    return TrialSpec(role="dose", from_step=from_step, until_step=132, **changes)


def trial(losses, first=GOOD):
    return [
        StepRecord(step=first + i, time=0.0, loss=loss, lr=0.1, grad_norm=1.0)
        for i, loss in enumerate(losses)
    ]


def judged(losses, *, found=None, first=GOOD, run=RUN, **changes):
    records = trial(losses, first)
    return judge_trial(spec(first, **changes), records, found, original=run, crash=CRASH)


def falling(start, end, count=100):
    return [start + (end - start) * i / (count - 1) for i in range(count)]


@pytest.mark.parametrize(
    ("losses", "outcome"),
    [
        pytest.param(falling(2.4, 1.0), "cured", id="learns on"),
        pytest.param(falling(2.4, 2.0), "cured", id="learns a quarter of what the healthy run did"),
        pytest.param([9.0, *falling(2.4, 1.0)], "cured", id="a bad first step"),
        pytest.param(falling(9.0, 2.6), "delayed", id="made worse at once, then the way back"),
        pytest.param([2.45] * 100, "stalled", id="frozen"),
        pytest.param(falling(2.4, 5.0), "delayed", id="worse, though no detector fired"),
        pytest.param([2.4] * 90 + [math.nan] * 10, "delayed", id="not finite at the end"),
        pytest.param([*falling(2.4, 1.0), *[1.0, math.nan] * 5], "delayed", id="half not finite"),
        pytest.param([*falling(2.4, 1.0), *[1.0] * 9, math.nan], "cured", id="one loss of nothing"),
        pytest.param([], "inconclusive", id="no step"),
    ],
)
def test_a_trial_that_no_detector_stopped_is(losses, outcome):
    steep = step_records(slope=0.05, noise=0.02)
    shift = steep[7].loss - 2.4
    found = judged([loss + shift for loss in losses], run=steep, first=10)
    assert found.outcome == outcome, found.note


@pytest.mark.parametrize(
    ("detected", "outcome"),
    [
        (GOOD + 1, "diverged"),
        (DETECTED, "diverged"),
        (GOOD + 2 * (DETECTED - GOOD), "diverged"),
        (GOOD + 2 * (DETECTED - GOOD) + 1, "delayed"),
    ],
)
def test_a_trial_that_diverged_is_delayed_when_it_lasted_more_than_twice_as_long(detected, outcome):
    found = judged([2.4] * 10, found=divergence(detected))
    assert found.outcome == outcome
    assert f"{detected - GOOD + 1} steps after the fork" in found.note


def test_right_before_a_crash_twice_as_long_is_no_delay():
    crash = divergence(GOOD + 2, GOOD + 1)
    late = divergence(GOOD + 7)
    found = judge_trial(spec(), trial([2.4] * 8), late, original=RUN, crash=crash)
    assert found.outcome == "diverged"


@pytest.mark.parametrize(("end", "outcome"), [(2.90, "cured"), (2.97, "stalled"), (3.0, "stalled")])
def test_from_scratch_the_loss_must_fall_even_when_the_run_crashed_before_it_learned(end, outcome):
    crash = divergence(4, 2)
    losses = [3.0, *falling(3.0, end, 60)]
    found = judge_trial(spec(0), trial(losses, 0), None, original=RUN[:5], crash=crash)
    assert found.outcome == outcome


@pytest.mark.parametrize("first", [math.inf, math.nan])
def test_a_trial_whose_first_loss_is_lost_has_no_progress_to_show(first):
    found = judge_trial(spec(0), trial([first, *[1.0] * 60], 0), None, original=RUN, crash=CRASH)
    assert found.outcome == "stalled"


def test_a_reversal_starts_from_the_state_it_forked_not_from_the_run_that_crashed():
    found = judged([1.2, *[1.19] * 60], first=47, from_trial="abc")
    assert found.start_loss == 1.2


def plateau(seed, *, spread=0.1, count=100):
    draw = random.Random(seed)
    return [
        StepRecord(step=i, time=0.0, loss=2.0 + draw.gauss(0, spread), lr=0.1, grad_norm=1.0)
        for i in range(count)
    ]


def test_on_a_plateau_a_trial_that_goes_on_like_the_healthy_run_is_cured():
    # The run has nothing left to learn before its onset, so a cure cannot be asked to learn much.
    cured = 0
    for seed in range(200):
        run = plateau(seed)
        crash = divergence(96, 90)
        after = [r.loss for r in plateau(1000 + seed)]
        records = trial(after, first=20)
        found = judge_trial(spec(20), records, None, original=run, crash=crash)
        cured += found.outcome == "cured"
    assert cured >= 185, "about one in twenty may fall outside the noise"


def test_frozen_weights_are_told_from_learning_where_the_run_learned():
    stalled = 0
    for seed in range(200):
        draw = random.Random(seed)
        losses = [3.0 - 0.02 * i + draw.gauss(0, 0.1) for i in range(90)]
        crash = divergence(96, 90)
        frozen = [losses[20] + draw.gauss(0, 0.1) for _ in range(80)]
        found = judge_trial(
            spec(20), trial(frozen, first=20), None, original=trial(losses, 0), crash=crash
        )
        stalled += found.outcome in {"stalled", "delayed"}
    assert stalled >= 190


def test_what_is_asked_for_is_a_quarter_of_what_the_run_achieved():
    run = trial(falling(5.0, 1.0, 101), 0)
    asked = needed_progress(20, run, divergence(100, 100), start=4.2)
    assert asked == pytest.approx(0.25 * (4.12 - 1.12))


@pytest.mark.parametrize("spread", [0.01, 0.1, 1.0])
def test_the_noise_is_the_standard_deviation_around_the_trend(spread):
    draw = random.Random(1)
    run = trial([10.0 - 0.1 * spread * i + draw.gauss(0, spread) for i in range(400)], 0)
    found = [noise(run, before) for before in range(40, 400, 20)]
    assert sum(found) / len(found) == pytest.approx(spread, rel=0.1)


STEADY = [10.0, *(1.0 + 1e-4 * (-1) ** i for i in range(39))]
"""It came down by nine, and has stood still since."""


@pytest.mark.parametrize(("rise", "outcome"), [(0.17, "cured"), (0.19, "delayed")])
def test_a_rise_is_harm_from_a_fiftieth_of_the_progress_made_so_far(rise, outcome):
    # Near its floor a loss wanders by more than its jumps from batch to batch tell.
    run = trial(STEADY, 0)
    assert tolerated(run, CRASH, start=1.0) == pytest.approx(0.02 * 9)
    after = trial([1.0] * 5 + [1.0 + rise] * 60)
    assert judge_trial(spec(), after, None, original=run, crash=CRASH).outcome == outcome


@pytest.mark.parametrize(
    ("run", "start"),
    [
        pytest.param(STEADY, math.inf, id="a first loss that is lost"),
        pytest.param([math.nan, *STEADY[1:]], 1.0, id="a run whose first loss is lost"),
        pytest.param(STEADY, 12.0, id="no progress so far"),
    ],
)
def test_without_progress_only_noise_is_no_harm(run, start):
    records = trial(run, 0)
    assert tolerated(records, CRASH, start=start) == noise(records, CRASH.onset)


@pytest.mark.parametrize(
    ("changes", "end", "outcome"),
    [
        pytest.param(("layer_rate",), 2.4, "stalled", id="a change that must learn"),
        pytest.param(("safe_operation",), 2.4, "cured", id="one that only takes a fault away"),
        pytest.param(("safe_operation",), 9.0, "delayed", id="which does harm"),
        pytest.param(("safe_operation", "layer_rate"), 2.4, "stalled", id="beside another"),
    ],
)
def test_where_only_a_fault_is_taken_away_it_is_enough_to_survive(changes, end, outcome):
    steep = step_records(slope=0.05, noise=0.02)
    made = tuple(Change(variable=variable, dose="x") for variable in changes)
    found = judged(
        [steep[9].loss] * 5 + [steep[9].loss - 2.4 + end] * 60, run=steep, first=10, changes=made
    )
    assert found.outcome == outcome, found.note


def test_too_little_history_has_no_noise():
    assert noise(RUN[:3], 3) == 0.0


losses = st.lists(st.floats(width=32), max_size=30)


@given(losses, losses, st.integers(0, 20), st.booleans())
def test_every_trial_of_whatever_losses_has_one_outcome(own, run, first, fell):
    found = judge_trial(
        spec(first),
        trial(own, first),
        divergence(first + len(own)) if fell else None,
        original=trial(run, 0),
        crash=divergence(25, 22),
    )
    allowed = {"diverged", "delayed"} if fell else {"cured", "stalled", "delayed", "inconclusive"}
    assert found.outcome in allowed
    if found.outcome == "cured":
        assert math.isfinite(found.start_loss)
        assert math.isfinite(found.end_loss)


@given(losses.filter(len))
def test_the_level_is_a_loss_or_the_middle_of_two_and_order_does_not_matter(values):
    found = level(values)
    assert found == level(values[::-1])
    bad = sum(not math.isfinite(value) for value in values)
    assert (found == math.inf) == (2 * bad >= len(values))


def test_a_network_that_collapsed_to_guessing_has_not_learned():
    original = trial([2.42, 2.40, 2.31, 2.28, 2.3], first=0)
    guessing = trial([2.42, *(2.30 + 0.02 * (-1) ** step for step in range(89))], first=0)
    crash = divergence(detected=8, onset=5)
    given = {"original": original, "crash": crash}
    assert judge_trial(spec(0), guessing, None, **given).outcome == "cured"
    found = judge_trial(spec(0), guessing, None, trivial_loss=math.log(10), **given)
    assert found.outcome == "stalled"
    assert "knows nothing scores 2.303" in found.note
