"""How sure a verdict is, what it rules out, what it says and what to type next."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from bisection.scripted_bisect import bisect, bisector_of
from bisection.scripted_facts import location, rule
from bisection.scripted_runs import BURSTS, LOWER_RATE, NO_WARMUP, NOISY, RISING, SUDDEN
from bisection.scripted_world import SETUP, World, divergence

from stabexp.bisection import attribution
from stabexp.bisection.attribution import AGREE, DISAGREE, MARGINAL, UNPROVED
from stabexp.records import FAMILIES, Cause

HELD = World(doses=LOWER_RATE, tests={"hold_rate": "c"}, records=RISING)
BAD_SAMPLE = World(doses=LOWER_RATE, crash=SUDDEN, culprits=frozenset({80}))


def verdict_of(
    world,
    telemetry=("inconclusive", "nothing speaks"),
    *,
    command=("stabexp", "run", "exp.yaml"),
):
    bisector = bisector_of(world)
    bisector.bisect()
    return attribution.verdict(
        bisector.facts,
        run_id="r1",
        bisect_id="b1",
        telemetry=telemetry,
        fix=bisector.fix,
        all_trials=bisector.runner.records,
        seconds=1.0,
        command=command,
    )


def test_the_measured_rates():
    assert pytest.approx(0.980, abs=5e-4) == AGREE
    assert pytest.approx(0.912, abs=5e-4) == DISAGREE


@pytest.mark.parametrize(
    ("world", "telemetry", "confidence"),
    [
        pytest.param(World(doses=LOWER_RATE), "learning_rate", AGREE, id="agreed"),
        # Within a family causes share their cures, so naming another member is no disagreement.
        pytest.param(World(doses=LOWER_RATE), "warmup", AGREE, id="another member of the family"),
        pytest.param(World(doses=LOWER_RATE), "data", DISAGREE, id="another opinion"),
        # Measured so: incidents in which the records named no cause were counted as disagreement.
        pytest.param(World(doses=LOWER_RATE), "inconclusive", DISAGREE, id="no opinion"),
        pytest.param(World(doses=LOWER_RATE, proofs="i"), "learning_rate", UNPROVED, id="no proof"),
        pytest.param(
            World(doses=LOWER_RATE, reversal="i"), "learning_rate", UNPROVED, id="no reversal"
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="ii"), "learning_rate", UNPROVED, id="no placebo"
        ),
        pytest.param(HELD, "schedule", AGREE, id="a mechanism, agreed"),
        pytest.param(HELD, "data", DISAGREE, id="a mechanism, another opinion"),
        pytest.param(BAD_SAMPLE, "data", AGREE, id="samples, agreed"),
        pytest.param(
            World(controls={30: {"mismatch": 31}}), "learning_rate", DISAGREE, id="not reproduced"
        ),
        pytest.param(World(placebos="cd"), "learning_rate", MARGINAL, id="marginal"),
        pytest.param(World(placebos="dc"), "learning_rate", MARGINAL, id="marginal by the order"),
        pytest.param(World(), "learning_rate", 0.0, id="inconclusive"),
        pytest.param(World(), "inconclusive", 0.0, id="both say nothing"),
        pytest.param(World(doses=LOWER_RATE, proofs="dd"), "learning_rate", 0.0, id="fix fails"),
    ],
)
def test_confidence_is_how_often_such_evidence_was_right(world, telemetry, confidence):
    found = verdict_of(world, (telemetry, "reason"))
    assert found.confidence == pytest.approx(confidence, abs=5e-4)
    assert found.telemetry == f"{telemetry}: reason"


def test_every_cause_belongs_to_a_family():
    assert set(FAMILIES) == set(Cause.__args__)
    assert bisect(World(doses=LOWER_RATE)).family == "step size"


def test_a_ramp_that_no_control_from_scratch_stands_against_was_not_put_back():
    bisector = bisector_of(World(doses={"warmup": "cccc"}, setup=NO_WARMUP))
    assert bisector.bisect().confidence > 0.7
    near = tuple(r for r in bisector.facts.controls if r.spec.from_step > 0)
    found = attribution.judge(replace(bisector.facts, controls=near))
    assert {step.node: step.answer for step in found.path}["reversal"] == "not tried"
    assert attribution.confidence(bisector.facts, found, "warmup") == UNPROVED


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (
            World(doses=LOWER_RATE),
            "The learning rate 0.1 is too high: ×0.35 of it trains through and putting it back "
            "brings the crash back.",
        ),
        (
            World(doses=LOWER_RATE, reversal="i"),
            "The learning rate 0.1 is too high: ×0.35 of it trains through.",
        ),
        (
            World(doses={"warmup": "ddcc"}, setup=NO_WARMUP),
            "The full learning rate comes too early: the same rate trains through after a linear "
            "warmup of 50 steps instead of 0.",
        ),
        (
            World(doses={"clip_norm": "dccccs"}, records=BURSTS),
            "Rare bursts of the gradient are not clipped: clipping at norm 2.0 trains through at "
            "the full learning rate and putting it back brings the crash back.",
        ),
        (
            World(doses={"batch_size": "dcc"}, setup=replace(SETUP, batch_size=4), metrics=NOISY),
            "4 samples per update are too few: ×4 trains through at the same learning rate and "
            "putting it back brings the crash back.",
        ),
        (
            World(
                doses={"precision": "c"},
                setup=replace(SETUP, precision="bf16"),
                metrics={"control": {"half_zero_gradient_share": 0.9}},
            ),
            "The number format bf16 loses numbers this training needs: fp32 trains through with "
            "nothing else changed and putting it back brings the crash back.",
        ),
        (
            HELD,
            "The schedule raises the learning rate too far: the rate rose from 0.1 to 0.3 around "
            "the onset; with the rate held where it was the run trains through.",
        ),
        (
            World(rules=[rule()]),
            "The fault is in the training code: no zero grad at train.py:12: gradients of 2 "
            "updates add up.",
        ),
        (
            World(locate=location(module=""), tests={"safe_operation": "c"}),
            "The loss leaves its own domain: step 40: log of 0 is -inf (log at train.py:31, "
            "forward); with only that operation kept inside its domain the run trains through.",
        ),
        (
            BAD_SAMPLE,
            "The data is at fault, not a setting: it trains through without sample 80, and "
            "another state crashes on it too.",
        ),
        (
            World(controls={30: {"divergence": None, "last_step": 66}}),
            "The crash is not reproducible, so no setting can be blamed: the unchanged replay from "
            "step 30 stayed stable; the run diverged at step 46.",
        ),
        (
            World(placebos="dc"),
            "The run is at the edge of stability and no single cause can be named: shuffle 1 made "
            "the crash go away too.",
        ),
        (
            World(doses=LOWER_RATE, proofs="dd"),
            "No cause could be proved: diverged as it is written.",
        ),
    ],
)
def test_the_verdict_in_one_sentence(world, says):
    assert bisect(world).summary == says


def test_a_cause_that_did_not_stand_is_told_by_what_brought_it_down():
    found = bisect(World(doses=LOWER_RATE, reversal="c"), seeds=2)
    assert found.cause == "inconclusive"
    assert "happened once" in found.summary


def test_a_verdict_that_the_budget_cut_short_says_so():
    found = bisect(World(doses=LOWER_RATE), budget=1)
    assert "budget" in found.summary


def test_what_is_ruled_out_says_how_that_is_known():
    world = World(
        doses=LOWER_RATE | {"clip_norm": "dccccs", "warmup": "ccc", "batch_size": "iii"},
        setup=replace(SETUP, precision="fp64"),
    )
    found = {item.variable: item for item in bisect(world).ruled_out}
    assert "times the usual" in found["clip_norm"].why
    assert found["batch_size"].why == "32 samples per update are not few"
    assert found["precision"].why == "the run is in fp64"
    assert found["warmup"].why == "the run has a ramp of 20 steps"
    assert not any(item.masker or item.trials for item in found.values())


def test_what_was_tried_as_well_is_told_as_it_was_found():
    world = World(
        doses=LOWER_RATE | {"clip_norm": "dccccs", "warmup": "dss", "batch_size": "iii"},
        setup=replace(SETUP, precision="fp64"),
    )
    found = {item.variable: item for item in bisect(world, thorough=True).ruled_out}
    assert {v for v, item in found.items() if item.masker} == {"clip_norm"}
    assert found["batch_size"].why.startswith("not known: ")
    assert found["batch_size"].why.count("inconclusive") == 3
    assert found["precision"].why == "not tried: fp64 is already the most exact"
    assert found["warmup"].why.startswith("no robust cure: ")
    assert found["warmup"].trials


@pytest.mark.parametrize(
    ("world", "cause"),
    [
        pytest.param(HELD, "schedule", id="a mechanism"),
        pytest.param(BAD_SAMPLE, "data", id="samples"),
        pytest.param(World(doses=LOWER_RATE, rules=[rule()]), "implementation", id="code"),
    ],
)
def test_settings_that_were_not_needed_are_not_tried_and_it_is_told_why(world, cause):
    why = {item.variable: item.why for item in bisect(world).ruled_out}
    assert why["learning_rate"] == f"not tried: {cause} was found and proved before it"


def test_without_a_cause_what_cures_is_not_ruled_out():
    found = bisect(World(doses=LOWER_RATE | {"clip_norm": "dddddd"}, records=BURSTS, reversal="c"))
    assert found.cause == "inconclusive"
    assert {item.variable for item in found.ruled_out} == {"clip_norm"}
    assert [cure.variable for cure in found.cures] == ["learning_rate"]


def test_a_culprit_is_named_where_the_cause_is_more_than_a_setting():
    sample = bisect(BAD_SAMPLE).culprit
    assert sample is not None
    assert (sample.kind, sample.samples) == ("samples", (80,))
    line = bisect(World(locate=location(), tests={"safe_operation": "c"})).culprit
    assert line is not None
    assert line.code == "loss = -p.log()"
    assert bisect(World(doses=LOWER_RATE)).culprit is None


@pytest.mark.parametrize(
    "source", ["exp.yaml", "my runs/exp (2).yaml", "<text>", "$(rm -r x).yaml"]
)
def test_the_next_command_can_be_pasted_into_a_shell(source):
    begun = ("stabexp", "run", source)
    command = verdict_of(World(doses=LOWER_RATE), command=begun).next_command
    assert shlex.split(command) == ["stabexp", "run", source, "-o", "optimizer.lr=0.035"]
    assert verdict_of(World()).next_command == "stabexp log r1"


def test_the_next_command_keeps_the_settings_of_the_run_but_those_that_the_fix_replaces():
    begun = ("stabexp", "run", "a.py:f", "-o", "optimizer.lr=0.1", "-o", "optimizer.lrs=1", "-o")
    command = verdict_of(World(doses=LOWER_RATE), command=(*begun, "train.args.x=a b")).next_command
    assert command == (
        "stabexp run a.py:f -o optimizer.lrs=1 -o 'train.args.x=a b' -o optimizer.lr=0.035"
    )


def test_the_cost_counts_every_trial_once():
    found = bisect(World(doses=LOWER_RATE))
    assert found.crash_steps == divergence().detected + 1
    assert found.trials == 11
    assert found.replayed_steps > found.crash_steps
