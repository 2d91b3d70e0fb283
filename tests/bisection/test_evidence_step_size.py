"""Batch, clipping, warmup, rate: cures only gate, what was seen and configured decides."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from bisection.scripted_facts import (
    CLIP,
    FAILED,
    LARGER,
    RAMP,
    RATE,
    control,
    cut_short,
    facts,
    ladder,
    seen,
)
from bisection.scripted_runs import BURSTS, FLAT
from bisection.scripted_world import DETECTED, divergence, step_records

from stabexp.bisection.evidence import step_size
from stabexp.bisection.facts import LadderFacts

NO_RAMP = {"warmup_steps": 0}
TINY = {"batch_size": 1}
NOTHING_ELSE = [FAILED[name] for name in ("learning_rate", "clip_norm", "warmup", "precision")]

CASES = {
    "batch_size": [
        (
            True,
            facts(LARGER, *NOTHING_ELSE, setup={"batch_size": 8}, controls=seen(early_grad_norm=2)),
            "8 per update and ×4 cures at the same rate; sampling noise in the gradient is 80%",
        ),
        (False, facts(LARGER, setup={"batch_size": 9}), "9 samples per update are not few"),
        (
            True,
            facts(LARGER, RATE, setup=TINY, controls=seen(early_grad_norm=2.0)),
            "is 80% of its squared size",
        ),
        (
            False,
            facts(LARGER, RATE, setup=TINY, controls=seen(early_grad_norm=1.2)),
            "is 33% of its squared size",
        ),
        (False, facts(LARGER, RATE, setup=TINY), "could not be measured"),
        (False, facts(FAILED["batch_size"], setup=TINY), "no dose cures robustly"),
        (None, facts(cut_short("batch_size"), setup=TINY), "budget"),
        (False, facts(cut_short("batch_size")), "not few"),
    ],
    "clip_norm": [
        (True, facts(CLIP, records=BURSTS), "15 times the usual"),
        (True, facts(CLIP, records=BURSTS, setup={"clip_norm": 21.0}), "the run clips at 21"),
        (False, facts(CLIP, records=BURSTS, setup={"clip_norm": 19.0}), "the run clips at 19"),
        (False, facts(CLIP), "times the usual"),
        (
            False,
            facts(
                ladder("clip_norm", "c", (1.0,), metrics={"clipped_share": 0.51}), records=BURSTS
            ),
            "acts in 51% of the steps",
        ),
        (
            False,
            facts(ladder("clip_norm", "c", (1.0,)), records=BURSTS),
            "acts in 100% of the steps",
        ),
        (
            False,
            facts(CLIP, RAMP, records=BURSTS, setup=NO_RAMP),
            "a ramp alone cures at the full rate",
        ),
        (True, facts(CLIP, FAILED["warmup"], records=BURSTS, setup=NO_RAMP), "times the usual"),
        (
            None,
            facts(CLIP, cut_short("warmup"), records=BURSTS, setup=NO_RAMP),
            "whether a ramp alone cures is open: the budget ran out",
        ),
        (True, facts(CLIP, cut_short("warmup"), records=BURSTS), "times the usual"),
        (True, facts(CLIP, RAMP, records=BURSTS, setup={"warmup_steps": 5}), "times the usual"),
        (
            False,
            facts(CLIP, records=step_records(bursts=(5,), onset=7), divergence=divergence(9, 7)),
            "too few steps before the onset to tell",
        ),
        (
            True,
            facts(CLIP, records=step_records(bursts=(5,), onset=8), divergence=divergence(9, 8)),
            "times the usual",
        ),
        (False, facts(FAILED["clip_norm"], records=BURSTS), "2.0 diverged, 1.0 stalled"),
        (None, facts(cut_short("clip_norm"), records=BURSTS), "budget"),
        (False, facts(cut_short("clip_norm")), "times the usual"),
        (
            False,
            facts(
                cut_short("clip_norm"),
                records=step_records(bursts=(5,), onset=7),
                divergence=divergence(9, 7),
            ),
            "too few steps",
        ),
    ],
    "warmup": [
        (True, facts(RAMP, setup=NO_RAMP), "then holds for 201 steps"),
        (False, facts(RAMP), "the run has a ramp of 20 steps"),
        (
            False,
            facts(RAMP, setup=NO_RAMP, divergence=divergence(56, 50)),
            "step 50 is past any usual warmup",
        ),
        (
            False,
            facts(
                RAMP,
                setup=NO_RAMP,
                records=[replace(r, lr=0.1 * min(1, (r.step + 1) / 20)) for r in step_records()],
            ),
            "the rate is ramped up already",
        ),
        (
            True,
            facts(ladder("warmup", "c", (100,), start=0, last=100 + DETECTED), setup=NO_RAMP),
            "for 47 steps",
        ),
        (
            False,
            facts(ladder("warmup", "c", (100,), start=0, last=99 + DETECTED), setup=NO_RAMP),
            "for 46 steps",
        ),
        (
            False,
            facts(
                ladder("warmup", "c", (100,), start=0, last=108),
                setup=NO_RAMP,
                divergence=divergence(2, 1),
                good_step=0,
            ),
            "for 9 steps at the full rate (the crash took 3)",
        ),
        (False, facts(FAILED["warmup"], setup=NO_RAMP), "50 diverged, 100 diverged"),
        (None, facts(cut_short("warmup"), setup=NO_RAMP), "budget"),
        (False, facts(cut_short("warmup")), "the run has a ramp of 20 steps"),
    ],
    "learning_rate": [
        (True, facts(RATE), "rate ×0.5 cures"),
        (False, facts(FAILED["learning_rate"]), "×0.5 diverged, ×0.1 diverged"),
        (
            False,
            facts(ladder("learning_rate", "dcd", (0.7, 0.5, 0.1), robust=False)),
            "no dose cures robustly",
        ),
        (None, facts(cut_short("learning_rate")), "budget"),
    ],
    "not_learning": [
        (
            True,
            facts(ladder("learning_rate", "dss", (0.5, 0.1, 0.01)), records=FLAT),
            "no rate is right",
        ),
        (False, facts(ladder("learning_rate", "dss", (0.5, 0.1, 0.01))), "×0.01 stalled"),
        (False, facts(ladder("learning_rate", "dds", (0.5, 0.1, 0.01))), "×0.01 stalled"),
        (False, facts(ladder("learning_rate", "css", (0.5, 0.1, 0.01))), "×0.5 cured"),
        (False, facts(), "none was tried"),
    ],
}


@pytest.mark.parametrize(
    ("node", "yes", "given", "says"),
    [
        pytest.param(name, *case, id=f"{name}-{i}-{case[0]}")
        for name, cases in CASES.items()
        for i, case in enumerate(cases)
    ],
)
def test_the_answer_about(node, yes, given, says):
    answer = getattr(step_size, node)(given)
    assert answer.yes is yes, answer.detail
    assert says in answer.detail


@pytest.mark.parametrize("variable", ["learning_rate", "warmup"])
def test_a_variable_that_could_be_the_cause_but_was_not_tried_is_not_answered_no(variable):
    ask = getattr(step_size, variable)
    skipped = LadderFacts(variable=variable, skipped="no room")
    assert ask(facts(skipped, setup=NO_RAMP)).text == "not tried"
    broken = ladder(variable, "ii", (1, 2))
    assert ask(facts(broken, setup=NO_RAMP)).text == "not tried"
    assert "inconclusive" in ask(facts(broken, setup=NO_RAMP)).detail


@pytest.mark.parametrize("variable", ["batch_size", "clip_norm"])
def test_a_variable_that_cannot_be_the_cause_is_answered_no_without_being_tried(variable):
    skipped = LadderFacts(variable=variable, skipped="no room")
    assert getattr(step_size, variable)(facts(skipped)).text == "no"


def test_survivors_that_hardly_learn_are_no_cures_of_a_run_that_does_not_learn():
    rates = ladder("learning_rate", "dcc", (0.5, 0.1, 0.01), robust=False)
    slow = tuple(r.spec.key for r in rates.trials if r.outcome == "cured")
    assert step_size.not_learning(facts(replace(rates, slow=slow), records=FLAT)).yes
    assert not step_size.not_learning(facts(replace(rates, slow=slow))).yes, "the run learned"
    assert not step_size.not_learning(facts(replace(rates, slow=slow[:1]), records=FLAT)).yes


def test_a_run_on_a_plateau_has_not_learned_whatever_its_records_say():
    plateau = replace(divergence(), pattern="plateau")
    rates = ladder("learning_rate", "dd", (0.5, 0.1))
    flat = replace(
        rates, trials=tuple(replace(trial, divergence=plateau) for trial in rates.trials)
    )
    assert step_size.not_learning(facts(flat, divergence=plateau)).yes
    assert not step_size.not_learning(facts(rates, divergence=plateau)).yes


def test_the_noise_share_is_that_of_the_run_compared_with_the_largest_batch_of_the_same_start():
    # |G|² = 1 and tr(Σ) = 15: the squared norm is 16 at one sample, 1 + 15/4 at four.
    four = ladder("batch_size", "d", (4,), metrics={"early_grad_norm": math.sqrt(4.75)})
    many = ladder("batch_size", "c", (16,), metrics={"early_grad_norm": math.sqrt(1 + 15 / 16)})
    both = replace(many, trials=(*four.trials, *many.trials))
    controls = (
        control(metrics={"early_grad_norm": 4.0}),
        control(0, metrics={"early_grad_norm": 9}),
    )
    for given in (four, many, both):
        assert step_size.noise_share(facts(given, controls=controls)) == pytest.approx(15 / 16)
    scratch = ladder("batch_size", "c", (16,), start=0, metrics={"early_grad_norm": 9.0})
    assert step_size.noise_share(facts(scratch, controls=controls)) == 0.0
    assert step_size.noise_share(facts(scratch, controls=controls[:1])) is None
    assert step_size.noise_share(facts(controls=controls)) is None
    lost = ladder("batch_size", "c", (16,), metrics={"early_grad_norm": math.nan})
    assert step_size.noise_share(facts(lost, controls=controls)) is None


def moved(*steps, start=30):
    """Return rate trials that crashed at these steps."""
    letters, doses = "d" * len(steps) + "c", (0.7, 0.5, 0.35, 0.25)[: len(steps) + 1]
    made = ladder("learning_rate", letters, doses, start=start)
    trials = [
        replace(trial, divergence=divergence(step, step - 6))
        for trial, step in zip(made.trials, steps, strict=False)
    ]
    return facts(replace(made, trials=(*trials, made.trials[-1])))


@pytest.mark.parametrize(
    ("given", "still"),
    [
        pytest.param(moved(46, 46), True, id="two rates, the same step"),
        pytest.param(moved(46, 47), True, id="within a step"),
        pytest.param(moved(46, 48), False, id="it moves"),
        pytest.param(moved(46), False, id="one rate shows nothing"),
        pytest.param(moved(46, 46, start=40), False, id="too near to the fork to move"),
    ],
)
def test_a_crash_that_does_not_move_with_the_rate_is_told(given, still):
    answer = step_size.learning_rate(given)
    assert answer.yes
    assert ("does not move with the rate" in answer.detail) == still
    assert bool(step_size.unmoved(given)) == still


YOUNG = {"records": step_records(onset=5), "divergence": divergence(9, 5), "good_step": 0}


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        pytest.param(facts(records=BURSTS), True, id="bursts"),
        pytest.param(facts(), False, id="none"),
        pytest.param(facts(setup=NO_RAMP, **YOUNG), True, id="too young to tell, and no ramp"),
        pytest.param(facts(**YOUNG), False, id="too young to tell, but ramped"),
        pytest.param(
            facts(setup=NO_RAMP | {"clip_norm": 1.0}, **YOUNG), False, id="too young, but clipped"
        ),
    ],
)
def test_clipping_is_tried_where_gradients_burst_or_had_no_time_to_show_it(given, asked):
    assert step_size.may_burst(given) == asked


@pytest.mark.parametrize(
    ("burst", "cause"), [(20.0, "clip_norm"), (2.0, "warmup"), (None, "warmup")]
)
def test_a_ramp_under_which_the_gradient_still_bursts_only_survives_it(burst, cause):
    metrics = {} if burst is None else {"burst_over_first": burst}
    ramp = ladder("warmup", "dc", (50, 100), start=0, last=300, metrics=metrics)
    given = facts(ramp, CLIP, setup=NO_RAMP, **YOUNG)
    assert bool(step_size.clip_norm(given).yes) == (cause == "clip_norm")
    assert step_size.warmup(given).yes
