"""Every node of the tree, both ways and where it can not know."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scripted_world import (
    DETECTED,
    GOOD,
    OUTCOMES,
    SETUP,
    World,
    divergence,
    step_records,
)

from stabexp.bisection import evidence
from stabexp.bisection.decision_tree import TREE, walk
from stabexp.bisection.facts import Facts, LadderFacts
from stabexp.bisection.plan import PLACEBOS
from stabexp.records import Change, Cure, TrialRecord, TrialSpec

WORLD = World()
BURSTS = step_records(bursts=(12, 25))


def shown(letter, *, role="dose", changes=(), start=GOOD, last=131, **fields):
    spec = TrialSpec(role=role, changes=changes, from_step=start, until_step=last + 1)
    fell = letter in "dl"
    found = divergence(DETECTED) if fell else None
    record = TrialRecord(
        spec=spec, outcome=OUTCOMES[letter], last_step=last, divergence=found, note="as written"
    )
    return replace(record, **fields)


def control(start=GOOD, **fields):
    return shown("d", role="control", start=start, last=DETECTED, **fields)


def ladder(variable, letters, doses, *, start=GOOD, last=131, robust=True, metrics=None, slow=()):
    trials = tuple(
        shown(
            letter,
            changes=(Change(variable=variable, dose=dose),),
            start=start,
            last=last,
            metrics=metrics or {},
        )
        for letter, dose in zip(letters, doses, strict=True)
    )
    cured = [t for t in trials if t.outcome == "cured"]
    cure = None
    if cured:
        cure = Cure(
            variable=variable,
            dose=cured[0].spec.dose,
            original=None,
            stronger_dose=None,
            milder_dose=None,
            robust=robust,
            trial=cured[0].spec.key,
            removed=0.0,
        )
    return LadderFacts(variable=variable, trials=trials, cure=cure, slow=slow)


def cut_short(variable):
    return LadderFacts(variable=variable, undecided=True, skipped="the budget ran out")


def facts(*ladders, setup=None, **fields):
    given = {
        "setup": replace(SETUP, **(setup or {})),
        "divergence": divergence(),
        "records": WORLD.records,
        "good_step": GOOD,
        "controls": (control(),),
        "placebos": tuple(shown("d", role="placebo", changes=(c,)) for c in PLACEBOS),
        "ladders": {lad.variable: lad for lad in ladders},
    }
    return Facts(**(given | fields))


RATE = ladder("learning_rate", "dcc", (0.7, 0.5, 0.1))
RAMP = ladder("warmup", "dc", (50, 100), start=0, last=300)
CLIP = ladder("clip_norm", "dcc", (4.0, 2.0, 1.0), metrics={"clipped_share": 0.1})
WIDER = ladder("precision", "cc", ("bf16", "fp32"))
LARGER = ladder("batch_size", "cc", (4, 16), metrics={"early_grad_norm": 1.0})
FAILED = {
    "learning_rate": ladder("learning_rate", "dd", (0.5, 0.1)),
    "precision": ladder("precision", "dd", ("bf16", "fp32")),
    "batch_size": ladder("batch_size", "dd", (2, 4)),
    "clip_norm": ladder("clip_norm", "ds", (2.0, 1.0)),
    "warmup": ladder("warmup", "dd", (50, 100), start=0),
}
ASK = {name: node.ask for name, node in TREE.items()}


def seen(**metrics):
    return (control(metrics=metrics),)


SUSPECTS = (Change(variable="replace_samples", dose="steps 38-40"),)
CASES = {
    "control": [
        (True, facts(), "equal bit for bit up to the divergence"),
        (True, facts(controls=(control(), control(0))), "from step 30 and 0"),
        (
            True,
            facts(controls=(control(mismatch=43, mismatch_field="digest"),)),
            "bit for bit up to step 42, past the onset at step 40",
        ),
        (False, facts(controls=(control(mismatch=40, mismatch_field="loss"),)), "at step 40, in"),
        (False, facts(controls=(control(divergence=divergence(47)),)), "diverged at step 47"),
        (
            False,
            facts(controls=(control(), control(0, divergence=None))),
            "from step 0 stayed stable",
        ),
        (None, facts(controls=()), "no unchanged replay"),
        (
            None,
            facts(controls=(control(divergence=None, last_step=29, note="no memory"),)),
            "could not be run to step 46: no memory",
        ),
    ],
    "placebo": [
        (True, facts(placebos=(shown("c", role="placebo", changes=PLACEBOS[2:]),)), "shuffle 1"),
        (False, facts(), "none cures: learning_rate ×0.97 diverged"),
        (False, facts(placebos=(shown("l", role="placebo", changes=PLACEBOS[:1]),)), "delayed"),
        (False, facts(placebos=(shown("i", role="placebo", changes=PLACEBOS[:1]),)), "no placebo"),
        (False, facts(placebos=()), "no placebo could be run"),
    ],
    "any_cure": [
        (True, facts(RATE, CLIP), "learning_rate ×0.5, clip_norm 2.0"),
        (False, facts(*FAILED.values()), "without a robust cure: learning_rate, precision"),
        (False, facts(), "nothing"),
        (False, facts(ladder("learning_rate", "dcd", (0.7, 0.5, 0.1), robust=False)), "robust"),
        (
            None,
            facts(cut_short("warmup")),
            "ran out, with no answer yet about warmup; tried without",
        ),
        (True, facts(RATE, cut_short("warmup")), "learning_rate ×0.5"),
    ],
    "data": [
        (True, facts(CLIP, data=shown("c", role="data", changes=SUSPECTS)), "look at the samples"),
        (False, facts(CLIP, data=shown("d", role="data", changes=SUSPECTS)), "diverged at step"),
        (False, facts(CLIP, data=shown("s", role="data", changes=SUSPECTS)), "stalled"),
        (False, facts(CLIP), "no replay without those samples"),
    ],
    "precision": [
        (False, facts(WIDER), "the run is in fp32"),
        (False, facts(WIDER, setup={"precision": "fp16"}), "no overflow or lost update was seen"),
        *[
            (
                True,
                facts(WIDER, setup={"precision": precision}, controls=seen(**{name: value})),
                says,
            )
            for precision, name, value, says in [
                ("fp16", "half_activation_nonfinite", 1, "activation overflowed"),
                ("fp16", "half_activation_absmax", 2.1e4, "reached 21,000 of at most 65,504"),
                ("pure_bf16", "update_nonfinite_first", 1, "update computed in half precision"),
                ("fp16", "skipped_share", 0.21, "left out 21% of the updates"),
                ("bf16", "half_zero_gradient_share", 0.61, "61% of the gradient elements"),
            ]
        ],
        (
            False,
            facts(WIDER, setup={"precision": "fp16"}, controls=seen(half_activation_absmax=1.9e4)),
            "no overflow",
        ),
        (
            False,
            facts(
                FAILED["precision"], setup={"precision": "fp16"}, controls=seen(skipped_share=0.9)
            ),
            "no dose cures robustly: bf16 diverged, fp32 diverged",
        ),
        (
            None,
            facts(
                cut_short("precision"),
                setup={"precision": "fp16"},
                controls=seen(skipped_share=0.9),
            ),
            "the budget ran out",
        ),
        (
            False,
            facts(cut_short("precision"), setup={"precision": "fp16"}),
            "the budget ran out",
        ),
    ],
    "batch_size": [
        (
            True,
            facts(
                LARGER,
                *map(FAILED.get, ("learning_rate", "clip_norm", "warmup", "precision")),
                setup={"batch_size": 8},
            ),
            "nothing else does",
        ),
        (False, facts(LARGER, setup={"batch_size": 9}), "9 samples per update are not few"),
        (
            True,
            facts(LARGER, RATE, setup={"batch_size": 1}, controls=seen(early_grad_norm=2.0)),
            "is 80% of its squared size; also cured by learning_rate; not tried to an end: clip",
        ),
        (
            False,
            facts(LARGER, RATE, setup={"batch_size": 1}, controls=seen(early_grad_norm=1.2)),
            "is 33% of its squared size",
        ),
        (False, facts(LARGER, RATE, setup={"batch_size": 1}), "could not be measured"),
        (False, facts(LARGER, setup={"batch_size": 1}), "not tried to an end: learning_rate"),
        (False, facts(FAILED["batch_size"], setup={"batch_size": 1}), "no dose cures robustly"),
        (
            None,
            facts(cut_short("batch_size"), setup={"batch_size": 1}),
            "budget",
        ),
        (False, facts(cut_short("batch_size")), "budget"),
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
            facts(CLIP, RAMP, records=BURSTS, setup={"warmup_steps": 0}),
            "a ramp alone cures at the full rate",
        ),
        (True, facts(CLIP, RAMP, records=BURSTS, setup={"warmup_steps": 5}), "times the usual"),
        (
            False,
            facts(CLIP, records=step_records(bursts=(5,), onset=7), divergence=divergence(9, 7)),
            "7 steps before the onset are too few",
        ),
        (
            True,
            facts(CLIP, records=step_records(bursts=(5,), onset=8), divergence=divergence(9, 8)),
            "times the usual",
        ),
        (False, facts(FAILED["clip_norm"], records=BURSTS), "2.0 diverged, 1.0 stalled"),
        (None, facts(cut_short("clip_norm"), records=BURSTS), "budget"),
        (False, facts(cut_short("clip_norm")), "budget"),
        (
            False,
            facts(
                cut_short("clip_norm"),
                records=step_records(bursts=(5,), onset=7),
                divergence=divergence(9, 7),
            ),
            "budget",
        ),
    ],
    "warmup": [
        (True, facts(RAMP), "then holds for 201 steps"),
        (True, facts(ladder("warmup", "c", (100,), start=0, last=100 + DETECTED)), "for 47 steps"),
        (False, facts(ladder("warmup", "c", (100,), start=0, last=99 + DETECTED)), "for 46 steps"),
        (
            False,
            facts(
                ladder("warmup", "c", (100,), start=0, last=108),
                divergence=divergence(2, 1),
                good_step=0,
            ),
            "for 9 steps at the full rate (the crash took 3)",
        ),
        (False, facts(FAILED["warmup"]), "50 diverged, 100 diverged"),
        (None, facts(cut_short("warmup")), "budget"),
    ],
    "learning_rate": [
        (True, facts(RATE), "rate ×0.5 cures"),
        (False, facts(FAILED["learning_rate"]), "×0.5 diverged, ×0.1 diverged"),
        (None, facts(cut_short("learning_rate")), "budget"),
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
def test_the_answer_of_every_node(node, yes, given, says):
    answer = ASK[node](given)
    assert answer.yes is yes, answer.detail
    assert says in answer.detail


def test_every_node_is_asked_both_ways_and_every_way_out_leads_somewhere():
    for name, node in TREE.items():
        answers = {case[0] for case in CASES[name]}
        assert {True, False} <= answers, name
        for target in (node.yes, node.no, node.unknown):
            assert target in TREE or target.startswith("= ")
    assert set(CASES) == set(TREE)


@pytest.mark.parametrize("variable", ["learning_rate", "warmup"])
def test_a_variable_that_could_be_the_cause_but_was_not_tried_is_not_answered_no(variable):
    skipped = LadderFacts(variable=variable, skipped="no room")
    assert ASK[variable](facts(skipped)).text == "not tried"
    broken = ladder(variable, "ii", (1, 2))
    assert ASK[variable](facts(broken)).text == "not tried"
    assert "inconclusive" in ASK[variable](facts(broken)).detail


@pytest.mark.parametrize("variable", ["precision", "batch_size", "clip_norm"])
def test_a_variable_that_cannot_be_the_cause_is_answered_no_without_being_tried(variable):
    skipped = LadderFacts(variable=variable, skipped="no room")
    assert ASK[variable](facts(skipped)).text == "no"


@pytest.mark.parametrize(
    ("given", "cause", "path"),
    [
        (facts(controls=(control(mismatch=3),)), "not_reproduced", ["control"]),
        (facts(controls=()), "inconclusive", ["control"]),
        (
            facts(placebos=(shown("c", role="placebo", changes=PLACEBOS[:1]),)),
            "marginal",
            ["control", "placebo"],
        ),
        (facts(), "inconclusive", ["control", "placebo", "any_cure"]),
        (
            facts(WIDER, RATE, setup={"precision": "fp16"}, controls=seen(skipped_share=0.5)),
            "precision",
            ["control", "placebo", "any_cure", "precision"],
        ),
        (
            facts(LARGER, RATE, setup={"batch_size": 1}, controls=seen(early_grad_norm=2.0)),
            "batch_size",
            ["control", "placebo", "any_cure", "precision", "data", "batch_size"],
        ),
        (
            facts(CLIP, RATE, records=BURSTS),
            "clip_norm",
            ["control", "placebo", "any_cure", "precision", "data", "batch_size", "clip_norm"],
        ),
        (facts(RAMP, RATE), "warmup", [*list(TREE)[:-1]]),
        (facts(RATE), "learning_rate", list(TREE)),
        (facts(LARGER), "inconclusive", list(TREE)),
        (
            facts(RATE, cut_short("warmup")),
            "inconclusive",
            list(TREE)[:-1],
        ),
    ],
)
def test_the_walk(given, cause, path):
    found, steps = walk(given)
    assert (found, [step.node for step in steps]) == (cause, path)
    assert [step.decisive for step in steps] == [False] * (len(path) - 1) + [True]


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
        assert evidence.noise_share(facts(given, controls=controls)) == pytest.approx(15 / 16)
    scratch = ladder("batch_size", "c", (16,), start=0, metrics={"early_grad_norm": 9.0})
    assert evidence.noise_share(facts(scratch, controls=controls)) == 0.0
    assert evidence.noise_share(facts(scratch, controls=controls[:1])) is None
    assert evidence.noise_share(facts(controls=controls)) is None
    lost = ladder("batch_size", "c", (16,), metrics={"early_grad_norm": math.nan})
    assert evidence.noise_share(facts(lost, controls=controls)) is None
