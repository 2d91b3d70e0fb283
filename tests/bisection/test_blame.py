"""When a cause is not named, or named without confidence: what did not hold, or was not shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bisection.scripted_bisect import bisect, judged, nodes, roles
from bisection.scripted_facts import location
from bisection.scripted_runs import LOWER_RATE, NO_WARMUP, NOISY, RISING, SUDDEN, TINY, WILD
from bisection.scripted_world import SETUP, World, divergence, step_records

STABLE = {"divergence": None, "last_step": 66}
ONE = frozenset({80})


@pytest.mark.parametrize(
    ("world", "cause", "node", "says"),
    [
        pytest.param(
            World(doses=LOWER_RATE, controls={30: STABLE}),
            "not_reproduced",
            "control",
            "stayed stable",
            id="stable replay",
        ),
        pytest.param(
            World(doses=LOWER_RATE, controls={30: {"divergence": divergence(52)}}),
            "not_reproduced",
            "control",
            "diverged at step 52",
            id="crashes at another step",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE | {"warmup": "cccc"},
                setup=NO_WARMUP,
                controls={0: {"mismatch": 3, "mismatch_field": "digest"}},
            ),
            "not_reproduced",
            "control",
            "differs at step 3, in digest",
            id="equal from the checkpoint but not from scratch",
        ),
        pytest.param(
            World(
                doses=LOWER_RATE,
                controls={
                    30: {
                        "divergence": None,
                        "outcome": "inconclusive",
                        "last_step": 29,
                        "note": "x",
                    }
                },
            ),
            "inconclusive",
            "control",
            "could not be run",
            id="a control that could not be run proves nothing",
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="cd"),
            "marginal",
            "placebo",
            "learning_rate ×0.97",
            id="placebo cures",
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="dc"),
            "marginal",
            "order",
            "shuffle 1",
            id="another order cures, and no samples are to blame",
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="dc", culprits=ONE, fragile=True),
            "marginal",
            "order",
            "shuffle 1",
            id="another order cures, and the samples are only hard",
        ),
        pytest.param(World(), "inconclusive", "joint", "no pair", id="nothing"),
        pytest.param(
            World(doses={"learning_rate": "ddddcddd"}),
            "inconclusive",
            "joint",
            "no pair",
            id="a cure whose stronger neighbour fails was luck",
        ),
        pytest.param(
            World(crash=SUDDEN, culprits=ONE, fragile=True),
            "inconclusive",
            "joint",
            "replace_samples 80",
            id="a hard batch is neither bad data nor half of a pair",
        ),
        pytest.param(
            World(doses=LOWER_RATE, reversal="c"),
            "inconclusive",
            "reversal",
            "happened once",
            id="the crash does not come back",
        ),
        pytest.param(
            World(doses=LOWER_RATE, reversal="s"),
            "inconclusive",
            "reversal",
            "happened once",
            id="the crash does not come back, though it does not learn",
        ),
        pytest.param(
            World(doses=LOWER_RATE, good=0, proofs="ss"),
            "inconclusive",
            "proof",
            "stalled",
            id="the fix learns nothing from scratch",
        ),
        pytest.param(
            World(doses=LOWER_RATE, proofs="dd"),
            "inconclusive",
            "proof",
            "diverged",
            id="no dose goes on",
        ),
        pytest.param(
            World(doses=LOWER_RATE, reversal="c", proofs="dd"),
            "inconclusive",
            "reversal",
            "happened once",
            id="neither comes back nor is proved",
        ),
        pytest.param(
            World(tests={"hold_rate": "c"}, records=RISING, proofs="d"),
            "inconclusive",
            "joint",
            "",
            id="a mechanism whose cure does not go on",
        ),
        pytest.param(
            World(doses=LOWER_RATE, tests={"safe_operation": "i"}, locate=location(), proofs="dd"),
            "inconclusive",
            "proof",
            "diverged",
            id="an operation that could not be kept safe",
        ),
    ],
)
def test_nobody_is_blamed_when(world, cause, node, says):
    verdict, _ = judged(world)
    assert verdict.cause == cause
    assert verdict.path[-1].node == node
    assert says in verdict.path[-1].detail
    assert verdict.fix == {}


def test_a_placebo_that_survives_without_learning_does_not_make_the_run_marginal():
    # The run is as broken as before: what a placebo shows is that nothing else is needed to heal.
    assert bisect(World(doses=LOWER_RATE, placebos="sd")).cause == "learning_rate"


@pytest.mark.parametrize(
    ("world", "answer"),
    [
        pytest.param(World(doses=LOWER_RATE, proofs="i"), ("proof", "not tried"), id="proof"),
        pytest.param(
            World(doses=LOWER_RATE, reversal="i"), ("reversal", "not tried"), id="reversal"
        ),
        pytest.param(
            World(doses=LOWER_RATE, placebos="ii"), ("placebo", "not tried"), id="placebos"
        ),
        pytest.param(
            World(doses=LOWER_RATE, crash=SUDDEN, dataset_size=None),
            ("data", "not tried"),
            id="samples without names",
        ),
        pytest.param(
            World(doses=LOWER_RATE, crash=SUDDEN, culprits=ONE, data="i"),
            ("data", "not tried"),
            id="samples that cannot be missed",
        ),
        pytest.param(
            World(doses=LOWER_RATE | {"warmup": "iiii"}, setup=NO_WARMUP),
            ("warmup", "not tried"),
            id="a rival",
        ),
    ],
)
def test_evidence_that_could_not_be_had_lowers_the_confidence(world, answer):
    verdict, _ = judged(world)
    assert verdict.cause == "learning_rate"
    assert nodes(verdict)[answer[0]] == answer[1]
    assert verdict.confidence == 0.75


def test_when_other_samples_can_be_missed_as_well_no_setting_is_claimed_with_confidence():
    verdict, bisector = judged(World(doses=LOWER_RATE, crash=SUDDEN, culprits=ONE, touchy=True))
    assert any(r.spec.role == "placebo" and r.outcome == "cured" for r in bisector.runner.records)
    assert verdict.cause == "marginal" or verdict.confidence <= 0.75


def test_a_crash_that_is_back_only_as_harm_is_neither_proof_nor_disproof():
    class Worse(World):
        def trial(self, spec, *, proofs_before=0):
            shown = super().trial(spec, proofs_before=proofs_before)
            if spec.role != "reversal":
                return shown
            return replace(shown, outcome="delayed", divergence=None, note="ended above")

    verdict = bisect(Worse(doses=LOWER_RATE))
    assert verdict.cause == "learning_rate"
    assert nodes(verdict)["reversal"] == "not clearly"
    assert verdict.confidence == 0.75
    assert "brings the crash back" not in verdict.summary


@pytest.mark.parametrize(
    ("later", "doses", "good", "confidence"),
    [
        pytest.param(0, "ddddcccc", 30, 0.75, id="the crash stays where it is"),
        pytest.param(2, "ddddcccc", 30, 0.98, id="the crash moves"),
        pytest.param(0, "dccccccc", 30, 0.98, id="one dose shows nothing"),
        pytest.param(0, "ddddcccc", 40, 0.98, id="too near to the fork to move"),
    ],
)
def test_the_rate_is_doubted_when_the_crash_does_not_move_with_it(later, doses, good, confidence):
    # As an outlier does that comes back in every epoch: a lower rate survives it, clipping too.
    world = World(doses={"learning_rate": doses}, good=good, crash_moves=later)
    verdict, _ = judged(world)
    assert verdict.cause == "learning_rate"
    assert verdict.confidence == confidence
    doubted = "The crash came at the same step at lower rates" in verdict.summary
    assert doubted == (confidence == 0.75)


def test_blaming_the_rate_without_having_tried_a_ramp_is_not_claimed_with_confidence():
    world = World(doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP)
    assert bisect(world, variables=("learning_rate",)).confidence == 0.75


def test_where_no_rival_can_be_the_cause_leaving_them_out_costs_no_confidence():
    # fp32, 32 samples, a ramp of its own and no bursts.
    assert bisect(World(doses=LOWER_RATE), variables=("learning_rate",)).confidence > 0.9


def test_a_ladder_with_nothing_to_try_says_so():
    run, crash = step_records(detected=16, onset=10), divergence(16, 10)
    short = replace(NO_WARMUP, steps=19)
    verdict, bisector = judged(
        World(doses=LOWER_RATE, setup=short, crash=crash, records=run, good=4)
    )
    assert "ends within half of the run's 19" in bisector.facts.ladder("warmup").skipped
    assert nodes(verdict)["warmup"] == "not tried"


def test_without_a_checkpoint_at_step_0_what_starts_there_is_not_tried():
    world = World(doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP, starts=(30,))
    verdict, bisector = judged(world)
    assert verdict.cause == "learning_rate"
    assert {r.spec.from_step for r in bisector.runner.records if r.spec.role != "proof"} == {30, 47}
    assert nodes(verdict)["warmup"] == "not tried"
    wild = replace(
        world, records=WILD, setup=replace(SETUP, trivial_loss=2.3), tests={"init_scale": "c"}
    )
    verdict, _ = judged(wild)
    assert nodes(verdict)["initialisation"] == "not tried"
    assert verdict.cause == "learning_rate"


def test_a_ramp_is_not_blamed_when_a_placebo_from_scratch_cures_as_well():
    world = World(
        doses=LOWER_RATE | {"warmup": "cccc"}, setup=NO_WARMUP, earlier_placebos={0: "cd"}
    )
    assert judged(world)[0].cause == "marginal"
    at_once, bisector = judged(replace(world, good=0, placebos="dd"))
    assert at_once.cause == "warmup"
    assert roles(bisector).count("placebo") == 2


@pytest.mark.parametrize(
    ("world", "cause", "orders"),
    [
        pytest.param(World(doses=LOWER_RATE), "learning_rate", [1, 2, 3], id="the rate"),
        pytest.param(
            World(doses={"batch_size": "ccc"}, setup=TINY, metrics=NOISY),
            "batch_size",
            [1, 2, 3, 4, 5],
            id="a batch, where an order tells less",
        ),
    ],
)
def test_what_anything_cures_is_at_the_edge_so_further_orders_are_tried(world, cause, orders):
    verdict, bisector = judged(world)
    assert verdict.cause == cause
    assert [s.dose for s in placebos_of(bisector) if s.variable == "shuffle"] == orders
    assert judged(replace(world, orders="c"))[0].cause == "marginal"


def placebos_of(bisector):
    return [r.spec for r in bisector.runner.records if r.spec.role == "placebo"]


def test_a_search_among_the_samples_does_not_save_the_further_orders():
    world = World(
        doses=LOWER_RATE, crash=SUDDEN, culprits=frozenset({80, 83}), fragile=True, orders="c"
    )
    verdict, bisector = judged(world)
    assert [s.dose for s in placebos_of(bisector) if s.variable == "shuffle"] == [1, 2, 3]
    assert verdict.cause == "marginal"


def digests(first, second):
    """Return what two replays to the steps 35 and 36 saw of one tensor in step 33."""
    return {
        35: {"33": [[0, "forward", "head", "float32(4, 2)", first]]},
        36: {"33": [[0, "forward", "head", "float32(4, 2)", second]], "34": []},
    }


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        pytest.param(digests("a", "b"), "the output of head: other bits", id="it never is"),
        pytest.param(digests("a", "a"), "the run itself was disturbed once", id="replays are"),
        pytest.param({}, "first differs at step 33, in loss, before", id="nothing was seen of it"),
    ],
)
def test_a_run_that_is_not_reproducible_is_replayed_twice_to_name_the_first_tensor(seen, says):
    differs = {"mismatch": 33, "mismatch_field": "loss"}
    verdict, bisector = judged(World(doses=LOWER_RATE, controls={30: differs}, digests=seen))
    assert verdict.cause == "not_reproduced"
    assert says in verdict.summary
    controls = [r.spec for r in bisector.runner.records]
    assert [spec.instruments for spec in controls[2:]] == [("tensor_digests",)] * 2
    assert [spec.until_step for spec in controls[2:]] == [35, 36]


def test_two_replays_that_are_one_are_not_said_to_be_equal():
    crash, run = divergence(34, 33), step_records(detected=34, onset=33)
    world = World(
        crash=crash,
        records=run,
        setup=replace(SETUP, steps=35),
        controls={30: {"mismatch": 33, "mismatch_field": "loss"}},
        digests=digests("a", "b"),
    )
    assert "disturbed once" not in judged(world)[0].summary
