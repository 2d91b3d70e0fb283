"""How sure a verdict is, what it rules out, what it says and what to type next."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from scripted_world import (
    GOOD,
    OUTCOMES,
    SETUP,
    World,
    bisect,
    bisector_of,
    divergence,
    step_records,
)

from stabexp.bisection import attribution
from stabexp.bisection.attribution import AGREE, DISAGREE, UNPROVED
from stabexp.records import Change, TrialRecord, TrialSpec

RATE = {"learning_rate": "ddcccsss"}
BURSTS = step_records(bursts=(12, 25))


def verdict_of(world, telemetry=("inconclusive", "nothing speaks"), *, source="exp.yaml"):
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
        source=source,
    )


def test_the_measured_rates():
    assert pytest.approx(0.957, abs=5e-4) == AGREE
    assert pytest.approx(0.778, abs=5e-4) == DISAGREE


@pytest.mark.parametrize(
    ("world", "telemetry", "confidence"),
    [
        pytest.param(World(doses=RATE), "learning_rate", AGREE, id="agreed"),
        pytest.param(World(doses=RATE), "warmup", DISAGREE, id="another opinion"),
        # Measured so: incidents in which the records named no cause were counted as disagreement.
        pytest.param(World(doses=RATE), "inconclusive", DISAGREE, id="no opinion"),
        pytest.param(World(doses=RATE, proofs="i"), "learning_rate", UNPROVED, id="no proof"),
        pytest.param(World(doses=RATE, reversal="i"), "learning_rate", UNPROVED, id="no reversal"),
        pytest.param(World(doses=RATE, placebos="iii"), "learning_rate", UNPROVED, id="no placebo"),
        pytest.param(
            World(doses=RATE | {"warmup": "iii"}), "learning_rate", UNPROVED, id="rival not tried"
        ),
        pytest.param(
            World(controls={30: {"mismatch": 31}}), "learning_rate", DISAGREE, id="not reproduced"
        ),
        pytest.param(World(placebos="dcd"), "learning_rate", UNPROVED, id="marginal"),
        pytest.param(World(), "learning_rate", 0.0, id="inconclusive"),
        pytest.param(World(), "inconclusive", 0.0, id="both say nothing"),
        pytest.param(World(doses=RATE, proofs="dd"), "learning_rate", 0.0, id="fix fails"),
    ],
)
def test_confidence_is_how_often_such_evidence_was_right(world, telemetry, confidence):
    found = verdict_of(world, (telemetry, "reason"))
    assert found.confidence == pytest.approx(confidence, abs=5e-4)
    assert found.telemetry == f"{telemetry}: reason"


def test_a_ramp_that_no_control_from_scratch_stands_against_was_not_put_back():
    bisector = bisector_of(World(doses={"warmup": "ccc"}))
    assert bisector.bisect().confidence > 0.7
    near = tuple(r for r in bisector.facts.controls if r.spec.from_step > 0)
    found = attribution.judge(replace(bisector.facts, controls=near))
    assert {step.node: step.answer for step in found.path}["reversal"] == "not tried"
    assert attribution.confidence(bisector.facts, found, "warmup") == UNPROVED


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (
            World(doses=RATE),
            "The learning rate 0.1 is too high: ×0.35 of it trains through and putting it back "
            "brings the crash back.",
        ),
        (
            World(doses=RATE, reversal="i"),
            "The learning rate 0.1 is too high: ×0.35 of it trains through.",
        ),
        (
            World(doses={"warmup": "ccc"}),
            "The full learning rate comes too early: the same rate trains through after a linear "
            "warmup of 25 steps instead of 20.",
        ),
        (
            World(doses={"clip_norm": "dccccs"}, records=BURSTS),
            "Rare bursts of the gradient are not clipped: clipping at norm 2.0 trains through at "
            "the full learning rate and putting it back brings the crash back.",
        ),
        (
            World(doses={"batch_size": "dcc"}, setup=replace(SETUP, batch_size=4)),
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
            World(controls={30: {"divergence": None, "last_step": 66}}),
            "The crash is not reproducible, so no setting can be blamed: the unchanged replay from "
            "step 30 stayed stable; the run diverged at step 46.",
        ),
        (
            World(placebos="ddc"),
            "The run is at the edge of stability and no single cause can be named: shuffle 1 made "
            "the crash go away too.",
        ),
        (
            World(doses=RATE, proofs="dd"),
            "No cause could be proved: diverged as it is written.",
        ),
    ],
)
def test_the_verdict_in_one_sentence(world, says):
    assert bisect(world).summary == says


def test_what_is_ruled_out_says_how_that_is_known():
    world = World(
        doses=RATE | {"clip_norm": "dccccs", "batch_size": "iii", "warmup": "dss"},
        setup=replace(SETUP, precision="fp64"),
    )
    found = {item.variable: item for item in bisect(world).ruled_out}
    assert found["clip_norm"].masker
    assert "times the usual" in found["clip_norm"].why
    assert found["batch_size"].why.startswith("not known: ")
    assert found["batch_size"].why.count("inconclusive") == 3
    assert found["precision"].why == "not tried: fp64 is already the most exact"
    assert found["warmup"].why.startswith("no robust cure: ")
    assert "25 diverged" in found["warmup"].why
    assert not any(item.masker for v, item in found.items() if v != "clip_norm")


def test_without_a_cause_what_cures_is_not_ruled_out():
    found = bisect(World(doses=RATE, reversal="c"))
    assert found.cause == "inconclusive"
    assert {item.variable for item in found.ruled_out} == {
        "clip_norm",
        "batch_size",
        "precision",
        "warmup",
    }
    assert [cure.variable for cure in found.cures] == ["learning_rate"]


@pytest.mark.parametrize(
    "source", ["exp.yaml", "my runs/exp (2).yaml", "<text>", "$(rm -r x).yaml"]
)
def test_the_next_command_can_be_pasted_into_a_shell(source):
    command = verdict_of(World(doses=RATE), source=source).next_command
    assert shlex.split(command) == ["stabexp", "run", source, "-o", "optimizer.lr=0.035"]
    assert verdict_of(World()).next_command == "stabexp log r1"


def test_the_cost_counts_every_trial_once():
    found = bisect(World(doses=RATE))
    assert found.crash_steps == divergence().detected + 1
    assert found.trials > 10
    assert found.replayed_steps > found.crash_steps


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
    found = attribution.slow_learners(records, noise=0.05)
    named = {r.spec.key: r.spec.dose for r in records}
    assert {named[key]: outcome for key, outcome in found.items()} == slow


def test_trials_of_another_start_or_that_are_not_cured_are_not_compared():
    elsewhere = [cured("learning_rate", 0.5, 9.0, start=0), cured("learning_rate", 0.1, 0.3)]
    assert attribution.slow_learners(elsewhere, noise=0.0) == {}
    fell = [cured("clip_norm", 1.0, 9.0, outcome="d"), cured("learning_rate", 0.1, 0.3)]
    assert attribution.slow_learners(fell, noise=0.0) == {}


@pytest.mark.parametrize(
    ("world", "removed"),
    [
        pytest.param(World(doses=RATE), 0.65, id="rate"),
        pytest.param(World(doses={"clip_norm": "dddccs"}), 0.5, id="clip"),
        pytest.param(World(doses={"warmup": "dcc"}), 15 / 400, id="ramp"),
        pytest.param(World(doses={"batch_size": "dcc"}), 0.0, id="batch"),
    ],
)
def test_how_much_of_the_healthy_updates_a_cure_takes_away(world, removed):
    (cure,) = bisect(world).cures
    assert cure.removed == pytest.approx(removed, abs=0.01)
