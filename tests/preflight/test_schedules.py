"""A schedule is seen to its planned end after a handful of updates."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler as schedules

from stabexp.instruments import Watched
from stabexp.preflight.schedules import RateOverTheRun, ScheduleAfterUpdate

PLANNED = 100

COURSES = [
    ("constant", lambda o: None, None),
    ("warm-up", lambda o: schedules.LinearLR(o, 0.1, total_iters=10), None),
    ("cosine", lambda o: schedules.CosineAnnealingLR(o, PLANNED), None),
    ("restarts", lambda o: schedules.CosineAnnealingWarmRestarts(o, 25), None),
    ("one cycle", lambda o: schedules.OneCycleLR(o, 0.1, total_steps=PLANNED + 1), None),
    ("decay", lambda o: schedules.StepLR(o, 40, 0.1), None),
    ("plateau", schedules.ReduceLROnPlateau, None),
    (
        "cycle too short",
        lambda o: schedules.OneCycleLR(o, 0.1, total_steps=60),
        "schedule_ends_early",
    ),
    ("ends half way", lambda o: schedules.PolynomialLR(o, 50), "schedule_ends_early"),
    (
        "half cosine of passes",
        lambda o: schedules.CosineAnnealingLR(o, 10),
        "schedule_on_wrong_clock",
    ),
    ("decay of passes", lambda o: schedules.ExponentialLR(o, 0.5), "schedule_on_wrong_clock"),
    ("long warm-up", lambda o: schedules.LinearLR(o, 0.01, total_iters=500), "warmup_too_long"),
    ("nothing", lambda o: schedules.LambdaLR(o, lambda step: 0.0), "rate_stays_zero"),
]


def followed(make, *, first=False) -> tuple[RateOverTheRun, ScheduleAfterUpdate]:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    schedule = make(optimizer)
    rules = RateOverTheRun(lambda: (PLANNED, 20)), ScheduleAfterUpdate()
    for rule in rules:
        rule.attach(Watched(model=torch.nn.Linear(1, 1), optimizer=optimizer, scheduler=schedule))
    alone = schedule is not None and not isinstance(schedule, schedules.ReduceLROnPlateau)
    optimizer.step()  # before the first schedule step, which warns otherwise
    for step in range(8):
        for rule in rules:
            rule.batch_begins(step, (), None)
        if alone and first:
            schedule.step()
        for rule in rules:
            rule.update_begins()
        optimizer.step()
        if alone and not first:
            schedule.step()
        for rule in rules:
            rule.update_ends(step)
    for rule in rules:
        rule.detach()
    return rules


@pytest.mark.parametrize(("make", "name"), [course[1:] for course in COURSES], ids=lambda v: None)
def test_a_course_is_judged_by_what_it_would_do_to_the_end(make, name):
    over_the_run, after = followed(make)
    found = over_the_run.finding()
    assert (found.rule if found else None) == name
    assert after.finding() is None


def test_the_rates_of_the_whole_run_are_those_of_the_schedule():
    over_the_run, _ = followed(lambda o: schedules.CosineAnnealingLR(o, PLANNED))
    assert len(over_the_run.rates) == PLANNED
    assert over_the_run.rates[50] == pytest.approx(0.05)
    assert over_the_run.rates[-1] == pytest.approx(0.0, abs=1e-4)


def test_a_schedule_stepped_before_the_update_is_told():
    _, after = followed(lambda o: schedules.LinearLR(o, 0.1, total_iters=10), first=True)
    found = after.finding()
    assert found is not None
    assert found.rule == "schedule_before_update"
