"""What counts as the usual gradient, and what as a burst."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bisection.scripted_world import ONSET, SETUP, divergence, step_records

from stabexp.bisection.facts import Facts, LadderFacts, burstiness, healthy_norm, healthy_norms
from stabexp.bisection.facts import Setup as RunSetup
from stabexp.records import TrialRecord, TrialSpec

CRASH = divergence()


def test_the_usual_norm_looks_at_finite_norms_before_the_onset_only():
    records = step_records()
    records[3] = replace(records[3], grad_norm=math.inf)
    records[4] = replace(records[4], grad_norm=math.nan)
    assert len(healthy_norms(records, ONSET)) == ONSET - 2
    assert healthy_norm(records, ONSET) == pytest.approx(1.0, abs=0.05)
    assert len(healthy_norms(records, ONSET, window=10)) == 10


def test_a_run_that_was_wrong_from_its_first_step_is_measured_by_its_first_finite_norm():
    records = [replace(r, grad_norm=math.nan if r.step == 0 else 7.0) for r in step_records()]
    assert healthy_norm(records, 0) == 7.0
    assert math.isnan(healthy_norm([replace(r, grad_norm=math.inf) for r in records], 0))


def calm_until(onset, **changes):
    """Return a healthy run whose step `onset` shows `changes`."""
    records = step_records(detected=onset, onset=onset + 1)
    return [*records[:-1], replace(records[-1], **changes)]


@pytest.mark.parametrize(
    ("records", "bursts"),
    [
        pytest.param(step_records(bursts=(12,), burst=15.0), 15.0, id="a burst it survived"),
        pytest.param(calm_until(ONSET, grad_norm=20.0), 20.0, id="the burst that throws it over"),
        pytest.param(calm_until(ONSET, grad_norm=20.0, loss=9.0), 1.0, id="a loss already high"),
        pytest.param(calm_until(ONSET, grad_norm=20.0, loss=math.nan), 1.0, id="a loss lost"),
        pytest.param(calm_until(ONSET, grad_norm=math.inf), 1.0, id="a norm lost"),
    ],
)
def test_a_burst_is_a_large_gradient_at_a_loss_that_is_still_normal(records, bursts):
    assert burstiness(records, CRASH) == pytest.approx(bursts, rel=0.12)


def test_without_a_usual_norm_nothing_is_known_of_bursts():
    assert math.isnan(burstiness([], CRASH))
    zero = [replace(r, grad_norm=0.0) for r in step_records()]
    assert math.isnan(burstiness(zero, CRASH))


def record(outcome):
    return TrialRecord(
        spec=TrialSpec(role="dose", from_step=0, until_step=9), outcome=outcome, last_step=8
    )


@pytest.mark.parametrize(
    ("outcomes", "undecided", "untold"),
    [
        ((), False, True),
        (("inconclusive", "inconclusive"), False, True),
        (("inconclusive", "diverged"), False, False),
        (("stalled",), False, False),
        (("cured",), True, True),
    ],
)
def test_a_ladder_tells_something_when_a_dose_was_judged_and_the_search_came_to_an_end(
    outcomes, undecided, untold
):
    trials = tuple(record(outcome) for outcome in outcomes)
    assert LadderFacts(variable="x", trials=trials, undecided=undecided).untold == untold


def test_a_variable_that_was_not_asked_for_has_an_empty_ladder():
    setup = RunSetup(
        lr=0.1,
        warmup_steps=0,
        clip_norm=None,
        precision="fp32",
        batch_size=4,
        micro_batch=4,
        steps=9,
    )
    facts = Facts(setup=setup, divergence=CRASH, records=(), good_step=0)
    ladder = facts.ladder("warmup")
    assert (ladder.cured, ladder.trials, ladder.skipped) == (False, (), "not tried")


def replayed(*, mismatch=None, rules=()):
    spec = TrialSpec(role="control", from_step=3, until_step=9)
    found = {"rules": list(rules)}
    return TrialRecord(
        spec=spec, outcome="diverged", last_step=8, mismatch=mismatch, findings=found
    )


def test_compiled_code_is_a_broken_rule_when_only_the_unwatched_replay_equals_the_run():
    assert isinstance(SETUP, RunSetup)
    given = Facts(setup=SETUP, divergence=CRASH, records=(), good_step=3)
    bare, watched = replayed(), replayed(mismatch=4)
    names = [
        [item["rule"] for item in replace(given, controls=(control,), watched=seen).broken_rules]
        for control, seen in ((bare, watched), (watched, watched), (bare, None))
    ]
    assert names == [["compiled_code_differs"], [], []]


def test_certain_rules_come_before_suspicious_ones_and_each_once():
    suspicious = {"rule": "input_range", "strength": "suspicious", "step": 4}
    certain = {"rule": "no_zero_grad", "strength": "certain", "step": 5}
    again = certain | {"step": 7}
    given = Facts(setup=SETUP, divergence=CRASH, records=(), good_step=3)
    given = replace(
        given, controls=(replayed(rules=[suspicious, certain]), replayed(rules=[again]))
    )
    assert list(given.broken_rules) == [certain, suspicious]
