"""What is shown while something runs, and how long it says that the rest takes."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from stabexp.bisection.outlook import Cost, Standing
from stabexp.records import Change, StepRecord, TrialRecord, TrialSpec
from stabexp.reporting.columns import columns
from stabexp.reporting.live import BisectDisplay, RunDisplay
from stabexp.reporting.pace import PLAIN, WATCHED, Pace

STANDING = Standing(
    node="clip_norm",
    good_step=120,
    onset=133,
    detected=141,
    ruled_out=("overfitting", "implementation", "marginal"),
    possible=("clip_norm", "learning_rate", "joint"),
    cures=("warmup 25",),
    now=Cost(replays=3, steps=180),
    later=Cost(replays=5, steps=420),
    step_seconds=0.01,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spec(dose: float, *, watched: bool = False) -> TrialSpec:
    return TrialSpec(
        role="control" if watched else "dose",
        changes=() if watched else (Change(variable="clip_norm", dose=dose),),
        from_step=120,
        until_step=180,
        instruments=("locate",) if watched else (),
        reason=f"does clip_norm {dose} cure it?",
    )


def record(made: TrialSpec, *, seconds: float, steps: int = 60) -> TrialRecord:
    return TrialRecord(
        spec=made,
        outcome="cured",
        last_step=made.from_step + steps - 1,
        start_loss=2.2,
        end_loss=1.9,
        seconds=seconds,
        number=5,
    )


def ran(pace: Pace, clock: Clock, *doses: float, seconds: float, together: bool = False) -> None:
    """Let a pace see replays of 60 steps, one after another or side by side."""
    made = [spec(dose) for dose in doses]
    for each in made if together else ():
        pace.started(each)
    if together:
        clock.now += seconds
    for each in made:
        if not together:
            pace.started(each)
            clock.now += seconds
        pace.finished(record(each, seconds=seconds), False)


def test_before_any_replay_the_runs_own_steps_tell_the_time():
    pace = Pace(Clock())
    assert pace.seconds(Cost(steps=100)) is None
    pace.asked(STANDING)
    assert pace.seconds(Cost(steps=100)) == pytest.approx(100 * PLAIN * 0.01)
    watched = pace.seconds(Cost(steps=100, watched=100))
    assert watched == pytest.approx(100 * WATCHED * 0.01)


def test_then_the_replays_do():
    clock = Clock()
    pace = Pace(clock)
    pace.asked(STANDING)
    ran(pace, clock, 1, 2, 3, seconds=6.0)
    assert pace.seconds(Cost(replays=2, steps=120)) == pytest.approx(12.0)
    assert pace.seconds(Cost(replays=2, steps=240)) == pytest.approx(12.0 + 120 * 0.01)


def test_the_first_replay_of_a_worker_which_waits_for_imports_is_no_measure():
    clock = Clock()
    pace = Pace(clock)
    pace.asked(STANDING)
    ran(pace, clock, 1, seconds=60.0)
    ran(pace, clock, 2, 3, seconds=6.0)
    assert pace.seconds(Cost(replays=2, steps=120)) == pytest.approx(12.0)


def test_replays_side_by_side_take_half_the_time_on_the_clock():
    clock = Clock()
    pace = Pace(clock)
    pace.asked(STANDING)
    ran(pace, clock, 1, 2, 3, 4, seconds=6.0, together=True)
    assert pace.seconds(Cost(replays=2, steps=120)) == pytest.approx(3.0)


def test_a_watched_replay_and_a_scan_say_nothing_about_plain_steps():
    clock = Clock()
    pace = Pace(clock)
    pace.asked(STANDING)
    pace.finished(record(spec(1, watched=True), seconds=600.0), True)
    scan = replace(spec(1), role="scan")
    pace.finished(record(scan, seconds=600.0), True)
    assert pace.seconds(Cost(steps=100)) == pytest.approx(100 * PLAIN * 0.01)
    assert pace.seconds(Cost(steps=60, watched=60)) == pytest.approx(600.0)


def test_what_is_left_counts_down_and_never_below_what_comes_later():
    clock = Clock()
    pace = Pace(clock)
    assert pace.left is None
    pace.asked(STANDING)
    assert pace.left == Cost(replays=8, steps=600)
    ran(pace, clock, 1, seconds=1.0)
    assert pace.left == Cost(replays=7, steps=540)
    ran(pace, clock, 2, 3, 4, 5, seconds=1.0)
    assert pace.left == STANDING.later


def shown(width: int = 80, **standing: object) -> tuple[str, BisectDisplay]:
    file = io.StringIO()
    clock = Clock()
    display = BisectDisplay(Console(file=file, width=width), clock=clock)
    display.phase("Do rare bursts of the gradient, which nothing clips, throw the run over?", "")
    display.standing(replace(STANDING, **standing))
    made = spec(2.5)
    display.started(made)
    display.finished(record(made, seconds=1.5), False)
    display.note("this dose does not hold; trying the next stronger one")
    display.close()
    return file.getvalue(), display


def test_a_question_says_what_is_known_and_what_is_left():
    text, _ = shown()
    assert text.splitlines() == [
        "[  0.0 s] Do rare bursts of the gradient, which nothing clips, throw the run",
        "          over?",
        "          the crash: onset at step 133, detected at 141; replays start at step",
        "            120",
        "          ruled out: overfitting, implementation, marginal",
        "          cures: warmup 25",
        "          still possible: clip norm, learning rate, joint",
        "          left: about 8 replays, 600 steps, 9.0 s",
        "  05  clip_norm 2.5                  cured      to step 179, loss 2.2 → 1.9",
        "  this dose does not hold; trying the next stronger one",
    ]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_of_the_progress_is_wider_than_the_file(width):
    text, _ = shown(width, ruled_out=STANDING.ruled_out * 5)
    assert max(map(columns, text.splitlines())) <= width
    assert "\x1b" not in text


def test_where_replays_start_is_said_again_only_when_it_moved():
    file = io.StringIO()
    display = BisectDisplay(Console(file=file, width=80), clock=Clock())
    for good in (120, 120, 80):
        display.standing(replace(STANDING, good_step=good))
    assert file.getvalue().count("the crash:") == 2


@pytest.mark.parametrize(
    ("budget", "left"),
    [
        ({"budget_steps": 200}, "at most 200 steps (the budget), about 3.0 s"),
        ({"budget_steps": 5000}, "about 8 replays, 600 steps, 9.0 s"),
        ({"budget_seconds": 4.0}, "at most 4.0 s (the budget)"),
        ({"budget_seconds": 600.0}, "about 8 replays, 600 steps, 9.0 s"),
        ({"step_seconds": None}, "about 8 replays, 600 steps"),
    ],
)
def test_an_estimate_is_about_and_a_budget_at_most(budget, left):
    display = BisectDisplay(Console(file=io.StringIO()), clock=Clock())
    assert display.left() == "not known yet"
    display.standing(replace(STANDING, **budget))
    assert display.left() == left


def test_an_expected_number_has_no_digits_that_nobody_knows():
    display = BisectDisplay(Console(file=io.StringIO()), clock=Clock())
    now = Cost(replays=0.2, steps=12_345.6)
    display.standing(replace(STANDING, now=now, later=Cost(), step_seconds=None))
    assert display.left() == "about 1 replay, 12,000 steps"


def test_a_quiet_display_tells_warnings_and_nothing_else():
    file, warnings = io.StringIO(), []
    display = BisectDisplay(Console(file=file, quiet=True), warn=warnings.append)
    display.phase("Does it crash again?", "")
    display.standing(STANDING)
    display.note("trying the next stronger dose")
    display.note("warning: the disk is nearly full")
    assert file.getvalue() == ""
    assert warnings == ["warning: the disk is nearly full"]


def test_a_terminal_has_one_live_line_that_fits():
    file = io.StringIO()
    console = Console(file=file, width=60, force_terminal=True, color_system=None)
    display = BisectDisplay(console, clock=Clock())
    display.standing(STANDING)
    display.started(spec(2.5))
    assert display._status is not None
    live = str(display._status.status)
    display.close()
    assert live.startswith("0 replays, 0 steps done · left: about 8 replays")
    assert columns(live) <= 57


def step(number: int) -> StepRecord:
    return StepRecord(step=number, time=0.0, loss=2.5, lr=0.1, grad_norm=1.25)


def test_a_training_says_how_fast_it_is_and_how_long_it_takes_yet():
    file, clock = io.StringIO(), Clock()
    display = RunDisplay(Console(file=file, width=80), steps=200, clock=clock)
    for number in range(100):
        clock.now += 0.05
        display.step(step(number))
    lines = file.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[0] == "  step   1/200  loss 2.5       lr 0.1      |g| 1.25"
    assert lines[-1].endswith("|g| 1.25     20 steps/s, 5.0 s left")


def test_a_training_that_does_not_know_its_end_says_only_how_fast_it_is():
    file, clock = io.StringIO(), Clock()
    display = RunDisplay(Console(file=file, width=80), steps=None, clock=clock)
    for number in range(5):
        clock.now += 0.5
        display.step(step(number))
    assert file.getvalue().splitlines()[-1].endswith(" 2 steps/s")


def test_the_pace_is_that_of_the_last_steps_not_of_a_slow_first_one():
    file, clock = io.StringIO(), Clock()
    display = RunDisplay(Console(file=file, width=80), steps=100, clock=clock)
    clock.now += 1000.0
    for number in range(90):
        clock.now += 0.1
        display.step(step(number))
    assert file.getvalue().splitlines()[-1].endswith("10 steps/s, 1.0 s left")


def test_a_loss_that_is_none_is_shown_as_such():
    file = io.StringIO()
    RunDisplay(Console(file=file, width=80), steps=10).step(replace(step(0), loss=math.nan))
    assert "loss nan" in file.getvalue()
