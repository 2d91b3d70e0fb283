"""What the doses of one variable showed: who hardly learns, and what a cure takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import bisect
from bisection.scripted_runs import BURSTS, LOWER_RATE, NO_WARMUP, NOISY
from bisection.scripted_world import GOOD, OUTCOMES, SETUP, World

from stabexp.bisection.dose_facts import slow_learners
from stabexp.records import Change, TrialRecord, TrialSpec

TINY = replace(SETUP, batch_size=4, micro_batch=4)


def cured(variable, dose, made, *, start=GOOD, outcome="c"):
    spec = TrialSpec(
        role="dose",
        changes=(Change(variable=variable, dose=dose),),
        from_step=start,
        until_step=100,
    )
    return TrialRecord(
        spec=spec, outcome=OUTCOMES[outcome], last_step=99, start_loss=3.0, end_loss=3.0 - made
    )


@pytest.mark.parametrize(
    ("trials", "slow"),
    [
        pytest.param(
            [("learning_rate", 0.5, 1.0), ("learning_rate", 0.1, 0.3)], {}, id="all learn"
        ),
        pytest.param(
            [("learning_rate", 0.5, 1.0), ("learning_rate", 0.1, 0.1)],
            {0.1: "stalled"},
            id="the stronger dose is too strong",
        ),
        pytest.param(
            [("learning_rate", 0.5, 0.1), ("learning_rate", 0.1, 1.0)],
            {0.5: "delayed"},
            id="the milder dose is too mild",
        ),
        pytest.param(
            [("batch_size", 16, 1.0), ("batch_size", 2, 0.1)], {2: "delayed"}, id="batches"
        ),
        pytest.param(
            [("precision", "fp32", 1.0), ("precision", "bf16", 0.1)],
            {"bf16": "delayed"},
            id="formats",
        ),
        pytest.param(
            [("clip_norm", 2.0, 1.0), ("learning_rate", 0.1, 0.1)],
            {0.1: "stalled"},
            id="next to another variable",
        ),
        pytest.param(
            [("clip_norm", 2.0, 0.04), ("learning_rate", 0.1, 0.005)],
            {},
            id="a lag within the noise",
        ),
        pytest.param(
            [("warmup", 25, 5.0), ("learning_rate", 0.1, 0.2)], {}, id="a ramp starts elsewhere"
        ),
        pytest.param(
            [("learning_rate", 0.1, -0.01), ("learning_rate", 0.5, -0.02)], {}, id="none learns"
        ),
    ],
)
def test_a_trial_hardly_learns_next_to_the_best_of_its_start(trials, slow):
    records = [cured(*trial) for trial in trials]
    found = slow_learners(records, noise=0.05)
    named = {r.spec.key: r.spec.dose for r in records}
    assert {named[key]: outcome for key, outcome in found.items()} == slow


def test_trials_of_another_start_or_that_are_not_cured_are_not_compared():
    elsewhere = [cured("learning_rate", 0.5, 9.0, start=0), cured("learning_rate", 0.1, 0.3)]
    assert slow_learners(elsewhere, noise=0.0) == {}
    fell = [cured("clip_norm", 1.0, 9.0, outcome="d"), cured("learning_rate", 0.1, 0.3)]
    assert slow_learners(fell, noise=0.0) == {}


@pytest.mark.parametrize(
    ("world", "removed"),
    [
        pytest.param(World(doses=LOWER_RATE), 0.65, id="rate"),
        pytest.param(World(doses={"clip_norm": "dccccs"}, records=BURSTS), 0.04, id="clip"),
        pytest.param(World(doses={"warmup": "ddcc"}, setup=NO_WARMUP), 25 / 400, id="ramp"),
        pytest.param(
            World(doses={"batch_size": "dcc"}, setup=TINY, metrics=NOISY), 0.0, id="batch"
        ),
    ],
)
def test_how_much_of_the_healthy_updates_a_cure_takes_away(world, removed):
    (cure,) = bisect(world).cures
    assert cure.removed == pytest.approx(removed, abs=0.01)
