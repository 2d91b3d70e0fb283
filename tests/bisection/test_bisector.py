"""A whole bisect of scripted worlds: what is run, in which order, and what the verdict says."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_world import (
    SETUP,
    ScriptedRunner,
    World,
    assert_well_formed,
    bisect,
    bisector_of,
    case_of,
    divergence,
    step_records,
)

from stabexp.bisection.bisector import Bisector
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.trials import Progress, TrialRunner
from stabexp.records import VARIABLES, TrialSpec, from_json, to_json
from stabexp.tracking.run_directory import RunDirectory

BURSTS = step_records(bursts=(12, 25))
NO_WARMUP = replace(SETUP, warmup_steps=0)
HALF = replace(SETUP, precision="fp16")
TINY = replace(SETUP, batch_size=1, micro_batch=1)
OVERFLOW = {"control": {"half_activation_absmax": 5e4}}
RATE = {"learning_rate": "ddcccsss"}
NOISY = {"control": {"early_grad_norm": 4.0}, "batch_size": {"early_grad_norm": 1.2}}


def roles(bisector):
    return [record.spec.role for record in bisector.runner.records]


def nodes(verdict):
    return {step.node: step.answer for step in verdict.path}


@pytest.mark.parametrize(
    ("world", "cause", "fix", "maskers"),
    [
        pytest.param(World(doses=RATE), "learning_rate", {"optimizer.lr": 0.035}, set(), id="rate"),
        pytest.param(
            World(doses=RATE | {"clip_norm": "dddccs"}),
            "learning_rate",
            {"optimizer.lr": 0.035},
            {"clip_norm"},
            id="rate, masked by clipping although nothing bursts",
        ),
        pytest.param(
            World(doses=RATE | {"warmup": "ccc"}),
            "warmup",
            {"schedule.warmup_steps": 25},
            {"learning_rate"},
            id="warmup, masked by the rate",
        ),
        pytest.param(
            World(doses=RATE | {"clip_norm": "dccccs"}, records=BURSTS),
            "clip_norm",
            {"clip": 2.0},
            {"learning_rate"},
            id="bursts, masked by the rate",
        ),
        pytest.param(
            World(
                doses=RATE | {"clip_norm": "dccccs", "warmup": "ddcc"},
                records=BURSTS,
                setup=NO_WARMUP,
            ),
            "warmup",
            {"schedule.warmup_steps": 50},
            {"learning_rate", "clip_norm"},
            id="bursts in a run without warmup that a ramp alone cures",
        ),
        pytest.param(
            World(doses=RATE | {"precision": "cc"}, setup=HALF, metrics=OVERFLOW),
            "precision",
            {"precision": "bf16"},
            {"learning_rate"},
            id="overflow, masked by the rate",
        ),
        pytest.param(
            World(doses=RATE | {"precision": "cc"}, setup=HALF),
            "learning_rate",
            {"optimizer.lr": 0.035},
            {"precision"},
            id="a wider format cures but no number was seen lost",
        ),
        pytest.param(
            World(doses={"batch_size": "dcc"}, setup=TINY),
            "batch_size",
            {"batch.size": 4},
            set(),
            id="tiny batch, nothing else cures",
        ),
        pytest.param(
            World(doses=RATE | {"batch_size": "dcc"}, setup=TINY, metrics=NOISY),
            "batch_size",
            {"batch.size": 4},
            {"learning_rate"},
            id="tiny batch whose gradient is mostly noise",
        ),
        pytest.param(
            World(doses=RATE | {"batch_size": "dcc"}, setup=TINY),
            "learning_rate",
            {"optimizer.lr": 0.035},
            {"batch_size"},
            id="tiny batch whose noise was not measured",
        ),
        pytest.param(
            World(doses=RATE | {"batch_size": "ccc"}),
            "learning_rate",
            {"optimizer.lr": 0.035},
            {"batch_size"},
            id="a larger batch cures but the batch is not small",
        ),
    ],
)
def test_the_cause_is_named_fixed_and_told_from_what_masks_it(world, cause, fix, maskers):
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    assert verdict.cause == cause, verdict.summary
    assert dict(verdict.fix) == pytest.approx(fix) if cause != "precision" else verdict.fix == fix
    assert verdict.fix_proved
    assert {item.variable for item in verdict.ruled_out if item.masker} == maskers
    assert verdict.confidence > 0.7
    assert (nodes(verdict)["reversal"], nodes(verdict)["proof"]) == ("yes", "yes")
    assert_well_formed(verdict, bisector)


@pytest.mark.parametrize(
    ("world", "cause", "node", "says"),
    [
        pytest.param(
            World(doses=RATE, controls={30: {"divergence": None, "last_step": 66}}),
            "not_reproduced",
            "control",
            "stayed stable",
            id="stable replay",
        ),
        pytest.param(
            World(doses=RATE, controls={30: {"divergence": divergence(52)}}),
            "not_reproduced",
            "control",
            "diverged at step 52",
            id="crashes at another step",
        ),
        pytest.param(
            World(doses=RATE, controls={0: {"mismatch": 3, "mismatch_field": "digest"}}),
            "not_reproduced",
            "control",
            "differs at step 3, in digest",
            id="equal from the checkpoint but not from scratch",
        ),
        pytest.param(
            World(
                doses=RATE,
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
            World(doses=RATE, placebos="dcd"),
            "marginal",
            "placebo",
            "learning_rate ×1.03",
            id="placebo cures",
        ),
        pytest.param(World(), "inconclusive", "any_cure", "without a robust cure", id="nothing"),
        pytest.param(
            World(doses={"learning_rate": "dddcdddd"}),
            "inconclusive",
            "any_cure",
            "without a robust cure",
            id="a cure whose stronger neighbour fails was luck",
        ),
        pytest.param(
            World(doses={"learning_rate": "ddddssss"}),
            "inconclusive",
            "any_cure",
            "without a robust cure",
            id="surviving without learning cures nothing",
        ),
        pytest.param(
            World(doses=RATE, reversal="c"),
            "inconclusive",
            "reversal",
            "happened once",
            id="the crash does not come back",
        ),
        pytest.param(
            World(doses=RATE, reversal="s"),
            "inconclusive",
            "reversal",
            "happened once",
            id="the crash does not come back, though it does not learn",
        ),
        pytest.param(
            World(doses=RATE, proofs="ss"), "inconclusive", "proof", "stalled", id="no proof"
        ),
        pytest.param(
            World(doses=RATE, reversal="c", proofs="dd"),
            "inconclusive",
            "reversal",
            "happened once",
            id="neither comes back nor is proved",
        ),
    ],
)
def test_nobody_is_blamed_when(world, cause, node, says):
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    assert verdict.cause == cause
    assert verdict.path[-1].node == node
    assert says in verdict.path[-1].detail
    assert verdict.fix == {}
    assert_well_formed(verdict, bisector)


def test_no_further_trial_runs_after_the_tree_has_ended():
    stable = bisector_of(World(doses=RATE, controls={30: {"divergence": None, "last_step": 66}}))
    stable.bisect()
    assert set(roles(stable)) == {"control"}
    marginal = bisector_of(World(doses=RATE, placebos="cdd"))
    marginal.bisect()
    assert set(roles(marginal)) == {"control", "placebo"}


def test_a_placebo_that_survives_without_learning_does_not_make_the_run_marginal():
    # The run is as broken as before: what a placebo shows is that nothing else is needed to heal.
    assert bisect(World(doses=RATE, placebos="dsd")).cause == "learning_rate"


def test_when_the_mildest_dose_fails_from_scratch_the_next_stronger_one_is_proved():
    bisector = bisector_of(World(doses=RATE, proofs="dc"))
    verdict = bisector.bisect()
    assert verdict.cause == "learning_rate"
    assert verdict.fix == {"optimizer.lr": 0.025}
    assert verdict.fix_proved
    assert "×0.25 of it trains through" in verdict.summary
    assert roles(bisector).count("proof") == 2
    assert_well_formed(verdict, bisector)


@pytest.mark.parametrize(
    ("world", "answer"),
    [
        pytest.param(World(doses=RATE, proofs="i"), ("proof", "not tried"), id="proof"),
        pytest.param(World(doses=RATE, reversal="i"), ("reversal", "not tried"), id="reversal"),
        pytest.param(World(doses=RATE, placebos="iii"), ("placebo", "not tried"), id="placebos"),
        pytest.param(World(doses=RATE | {"warmup": "iii"}), ("warmup", "not tried"), id="a rival"),
    ],
)
def test_evidence_that_could_not_be_had_lowers_the_confidence(world, answer):
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    assert verdict.cause == "learning_rate"
    assert nodes(verdict)[answer[0]] == answer[1]
    assert verdict.confidence == 0.6
    assert_well_formed(verdict, bisector)


def test_a_crash_that_is_back_only_as_harm_is_neither_proof_nor_disproof():
    class Worse(World):
        def trial(self, spec, *, proofs_before=0):
            shown = super().trial(spec, proofs_before=proofs_before)
            if spec.role != "reversal":
                return shown
            return replace(shown, outcome="delayed", divergence=None, note="ended above")

    verdict = bisect(Worse(doses=RATE))
    assert verdict.cause == "learning_rate"
    assert nodes(verdict)["reversal"] == "not clearly"
    assert verdict.confidence == 0.6
    assert "brings the crash back" not in verdict.summary


@pytest.mark.parametrize(
    ("later", "doses", "good", "confidence"),
    [
        pytest.param(0, "ddddcccc", 30, 0.6, id="the crash stays where it is"),
        pytest.param(2, "ddddcccc", 30, 0.957, id="the crash moves"),
        pytest.param(0, "dccccccc", 30, 0.957, id="one dose shows nothing"),
        pytest.param(0, "ddddcccc", 40, 0.957, id="too near to the fork to move"),
    ],
)
def test_the_rate_is_doubted_when_the_crash_does_not_move_with_it(later, doses, good, confidence):
    # As an outlier does that comes back in every epoch: a lower rate survives it, clipping too.
    table = {"learning_rate": doses, "clip_norm": "dccccc"}
    world = World(doses=table, good=good, crash_moves=later)
    verdict = bisect(world)
    assert verdict.cause == "learning_rate"
    assert verdict.confidence == confidence
    doubted = "The crash came at the same step at lower rates" in verdict.summary
    assert doubted == (confidence == 0.6)


@pytest.mark.parametrize(
    ("variables", "cause", "left_out"),
    [
        (("learning_rate",), "learning_rate", 4),
        (("learning_rate", "warmup"), "warmup", 3),
        (("clip_norm", "batch_size"), "inconclusive", 0),
    ],
)
def test_variables_left_out_are_neither_tried_nor_ruled_out(variables, cause, left_out):
    bisector = bisector_of(World(doses=RATE | {"warmup": "ccc"}), variables=variables)
    verdict = bisector.bisect()
    assert verdict.cause == cause
    asked = {r.spec.variable for r in bisector.runner.records if r.spec.role == "dose"}
    assert asked == set(variables)
    why = [item.why for item in verdict.ruled_out if item.variable not in variables]
    assert why == ["not tried: left out by request"] * left_out
    assert_well_formed(verdict, bisector)


def test_blaming_the_rate_without_having_tried_a_ramp_is_not_claimed_with_confidence():
    world = World(doses=RATE | {"warmup": "ccc"})
    assert bisect(world, variables=("learning_rate",)).confidence == 0.6
    precise_enough = bisect(World(doses=RATE), variables=("learning_rate", "warmup"))
    # fp32, 32 samples and no bursts: none of the others can be the cause.
    assert precise_enough.confidence > 0.9


def test_a_tiny_batch_is_not_blamed_for_want_of_a_rival():
    world = World(doses=RATE | {"batch_size": "dcc"}, setup=TINY)
    verdict = bisect(world, variables=("batch_size",))
    assert verdict.cause == "inconclusive"
    noisy = bisect(replace(world, metrics=NOISY), variables=("batch_size",))
    assert noisy.cause == "batch_size"


def test_a_variable_with_nothing_to_try_says_so():
    short = World(
        doses={"learning_rate": "ddcccsss"},
        setup=replace(SETUP, steps=60, warmup_steps=40, precision="fp64"),
    )
    verdict = bisect(short)
    why = {item.variable: item.why for item in verdict.ruled_out}
    assert "ends within half of the run's 60" in why["warmup"]
    assert "already the most exact" in why["precision"]
    assert verdict.cause == "learning_rate"
    assert verdict.confidence == 0.6  # a longer ramp might have cured it too


def test_when_nothing_cures_from_the_checkpoint_everything_is_tried_again_from_scratch():
    bisector = bisector_of(World(scratch=RATE))
    verdict = bisector.bisect()
    assert verdict.cause == "learning_rate"
    assert any("tried again from step 0" in note for note in bisector.runner.notes)
    assert {r.spec.from_step for r in bisector.facts.placebos} == {30, 0}
    assert_well_formed(verdict, bisector)


@pytest.mark.parametrize("variables", [VARIABLES, ("learning_rate",)], ids=["all", "only the rate"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        pytest.param({"scratch_placebos": "ddc"}, "marginal", id="a placebo cures from there"),
        pytest.param(
            {"controls": {0: {"divergence": None, "last_step": 66}}},
            "not_reproduced",
            id="no crash from there",
        ),
    ],
)
def test_a_cure_from_scratch_needs_a_control_and_placebos_from_scratch(change, cause, variables):
    bisector = bisector_of(World(scratch=RATE, **change), variables=variables)
    verdict = bisector.bisect()
    assert verdict.cause == cause
    assert_well_formed(verdict, bisector)


def test_without_a_checkpoint_at_step_0_what_starts_there_is_not_tried():
    bisector = bisector_of(World(doses=RATE, from_scratch=False))
    verdict = bisector.bisect()
    assert {r.spec.from_step for r in bisector.runner.records if r.spec.role != "proof"} == {30, 47}
    assert (verdict.cause, verdict.confidence) == ("learning_rate", 0.6)
    assert_well_formed(verdict, bisector)
    nothing = bisector_of(World(scratch=RATE, from_scratch=False))
    assert nothing.bisect().cause == "inconclusive"


def test_a_ramp_is_not_blamed_when_a_placebo_from_scratch_cures_as_well():
    world = World(doses=RATE | {"warmup": "ccc"}, scratch_placebos="dcd")
    verdict = bisect(world)
    assert verdict.cause == "marginal"
    at_once = bisector_of(replace(world, good=0, scratch_placebos="ddd"))
    assert at_once.bisect().cause == "warmup"
    assert roles(at_once).count("placebo") == 3


def test_a_dose_that_hardly_learns_next_to_the_best_is_searched_on():
    # ×0.1 and ×0.25 survive as frozen weights do; ×0.35 is what learns.
    world = World(
        doses={"learning_rate": "ddcccccc", "clip_norm": "ddcccc"},
        progress={"learning_rate": [0, 0, 1.0, 1.0, 0.05, 0.02, 0.01, 0.0]},
    )
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    cure = bisector.facts.ladder("learning_rate").cure
    assert cure is not None
    assert (cure.dose, cure.robust) == (0.35, True)
    assert verdict.cause == "learning_rate"
    assert_well_formed(verdict, bisector)


def test_a_cure_found_in_the_second_search_must_learn_as_well():
    # Only the clip trial learns. Every rate that survives hardly does, also those asked last.
    world = World(
        doses={"learning_rate": "cccccccc", "clip_norm": "ddcccc"},
        progress={"learning_rate": [0.2, 0.15, 0.1, 0.08, 0.06, 0.04, 0.02, 0.01]},
    )
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    assert bisector.facts.ladder("learning_rate").cure is None
    assert verdict.cause == "inconclusive"
    slow = bisector.facts.ladder("learning_rate").slow
    assert {bisector.facts.ladder("learning_rate").trial(key).outcome for key in slow} == {"cured"}
    why = next(item.why for item in verdict.ruled_out if item.variable == "learning_rate")
    assert "hardly learns" in why


@pytest.mark.parametrize(
    ("letters", "made"),
    [
        ("dccccccc", [0.05, 1.0, 0.1, 0.05, 1.0, 0.05, 0.05, 0.05]),
        ("ccccccdc", [0.1, 0.1, 0.1, 1.0, 1.0, 0.05, 0.1, 0.1]),
        ("cccccddc", [1.0, 0.05, 1.0, 0.1, 0.1, 1.0, 0.05, 1.0]),
    ],
)
def test_searching_goes_on_until_no_cure_hardly_learns(letters, made):
    world = World(
        doses={"learning_rate": letters, "clip_norm": "ddcccc"}, progress={"learning_rate": made}
    )
    bisector = bisector_of(world)
    assert_well_formed(bisector.bisect(), bisector)


@pytest.mark.parametrize("budget", range(0, 2500, 60))
def test_a_budget_that_runs_out_never_names_another_cause_than_an_unlimited_one(budget):
    worlds = {
        "warmup": World(doses=RATE | {"warmup": "ddc", "clip_norm": "dddccs"}),
        "clip_norm": World(doses=RATE | {"clip_norm": "dccccs"}, records=BURSTS),
        "precision": World(doses=RATE | {"precision": "cc"}, setup=HALF, metrics=OVERFLOW),
        "batch_size": World(doses=RATE | {"batch_size": "dcc"}, setup=TINY, metrics=NOISY),
        "learning_rate": World(doses=RATE),
    }
    for cause, world in worlds.items():
        bisector = bisector_of(world, budget=budget)
        verdict = bisector.bisect()
        assert verdict.cause in {cause, "inconclusive"}, verdict.summary
        assert verdict.fix_proved or verdict.confidence <= 0.6
        assert_well_formed(verdict, bisector)


def test_a_budget_that_is_spent_starts_no_further_trial_and_says_what_is_known():
    bisector = bisector_of(World(doses=RATE), budget=1)
    verdict = bisector.bisect()
    assert set(roles(bisector)) == {"control"}
    assert verdict.cause == "inconclusive"
    assert "the budget of 1 replayed steps ran out, with no answer yet" in verdict.path[-1].detail
    assert {item.why for item in verdict.ruled_out} == {
        "not ruled out: the budget of 1 replayed steps ran out"
    }
    full = bisector_of(World(doses=RATE))
    full.bisect()
    doses = sum(r.steps for r in full.runner.records if r.spec.role not in {"proof", "reversal"})
    unproved = bisector_of(World(doses=RATE), budget=doses)
    verdict = unproved.bisect()
    assert (verdict.cause, verdict.confidence, verdict.fix_proved) == ("learning_rate", 0.6, False)
    assert nodes(verdict)["proof"] == "not tried"
    assert verdict.path[-1].detail == "the budget ran out"


def test_the_fix_of_an_own_training_loop_is_an_intervention():
    verdict = bisect(World(doses=RATE, setup=replace(SETUP, lr=None)), own_loop=True)
    assert verdict.fix == {"interventions.learning_rate": 0.35}
    assert verdict.next_command == "stabexp run exp.yaml -o interventions.learning_rate=0.35"
    assert verdict.summary.startswith("The learning rate is too high")


def test_a_trial_that_is_asked_for_twice_is_counted_once():
    bisector = bisector_of(World(scratch=RATE | {"warmup": "ddd"}))
    verdict = bisector.bisect()
    keys = [record.spec.key for record in bisector.runner.records]
    assert len(keys) > len(set(keys)), "the warmup trials are asked for in both passes"
    assert verdict.trials == len(set(keys))


class ScriptedPool:
    """Stands where the worker processes stand and answers from a world."""

    def __init__(self, world):
        self.runner = ScriptedRunner(world)
        self.jobs = deque()
        self.tickets = 0

    def submit(self, job):
        self.tickets += 1
        self.jobs.append((self.tickets, job))
        return self.tickets

    def wait(self):
        ticket, job = self.jobs.popleft()
        if "survey" in job:
            return ticket, asdict(self.runner.survey())
        spec = from_json(TrialSpec, job["spec"])
        self.runner.submit(spec)
        record = replace(self.runner.wait(), number=-1, directory=Path(job["trial"]).name)
        return ticket, to_json(record)


def test_on_disk_and_in_optuna_the_verdict_is_the_same_and_a_second_start_runs_nothing(tmp_path):
    world = World(doses=RATE | {"clip_norm": "dddccs"})
    directory = RunDirectory.create(
        tmp_path / "b1", run_id="b1", kind="bisect", name="b", experiment="e", tracking_uri="x"
    )
    found = []
    for _ in range(2):
        pool = ScriptedPool(world)
        real = Bisector(
            case_of(world),
            TrialRunner(directory, pool, params={}, progress=Progress()),
            open_studies=lambda phase: DoseStudies(tmp_path / "optuna.db", bisect_id=phase),
            variables=VARIABLES,
        )
        found.append(replace(real.bisect(), seconds=0.0))
    assert pool.runner.records == []
    scripted = replace(bisect(world), seconds=0.0)
    for verdict in found:
        assert (verdict.cause, verdict.confidence) == (scripted.cause, scripted.confidence)
        assert [s.answer for s in verdict.path] == [s.answer for s in scripted.path]
        assert {c.variable: c.dose for c in verdict.cures} == {
            c.variable: c.dose for c in scripted.cures
        }
    assert found[0].fix == found[1].fix == scripted.fix
    assert found[0].trials == found[1].trials


letters = st.sampled_from("dlcsi")


def rungs(count):
    return st.text(letters, min_size=count, max_size=count)


@st.composite
def worlds(draw):
    setup = replace(
        SETUP,
        warmup_steps=draw(st.sampled_from([0, 20])),
        precision=draw(st.sampled_from(["fp32", "fp16"])),
        batch_size=draw(st.sampled_from([1, 32])),
    )
    table = {
        "learning_rate": draw(rungs(8)),
        "clip_norm": draw(rungs(6)),
        "batch_size": draw(rungs(3)),
        "precision": draw(rungs(2 if setup.precision == "fp16" else 1)),
        "warmup": draw(rungs(3 if setup.warmup_steps else 4)),
    }
    made = st.floats(0.0, 1.0)
    return World(
        doses=table,
        scratch=draw(st.sampled_from([None, RATE])),
        placebos=draw(st.sampled_from(["ddd", "dsl", "iid", "cdd"])),
        scratch_placebos=draw(st.sampled_from(["ddd", "dcd"])),
        controls=draw(
            st.sampled_from([{}, {}, {}, {0: {"mismatch": 2, "mismatch_field": "loss"}}])
        ),
        reversal=draw(letters),
        proofs=draw(letters) + draw(letters),
        progress={
            v: draw(st.lists(made, min_size=len(t), max_size=len(t))) for v, t in table.items()
        },
        metrics=draw(st.sampled_from([{}, OVERFLOW, NOISY])),
        records=draw(st.sampled_from([BURSTS, step_records()])),
        setup=setup,
        good=draw(st.sampled_from([0, 30])),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    worlds(),
    st.one_of(st.none(), st.integers(0, 3000)),
    st.sets(st.sampled_from(VARIABLES), min_size=1),
)
def test_whatever_the_trials_do_the_verdict_is_well_formed(world, budget, chosen):
    variables = [variable for variable in VARIABLES if variable in chosen]
    bisector = bisector_of(world, variables=variables, budget=budget)
    assert_well_formed(bisector.bisect(), bisector)


def test_a_crash_that_hangs_on_its_samples_is_blamed_on_no_setting():
    bisector = bisector_of(World(doses=RATE, data="c", others="d"))
    verdict = bisector.bisect()
    assert_well_formed(verdict, bisector)
    assert verdict.cause == "inconclusive"
    assert verdict.path[-1].node == "data"
    assert "look at the samples" in verdict.summary
    assert not {"reversal", "proof"} & set(roles(bisector))


def test_when_other_samples_can_be_missed_as_well_the_run_is_marginal():
    bisector = bisector_of(World(doses=RATE, data="c", others="c"))
    verdict = bisector.bisect()
    assert_well_formed(verdict, bisector)
    assert verdict.cause == "marginal"


def test_a_lost_number_is_not_looked_for_in_the_data():
    lost = {"control": {"half_activation_nonfinite": 1.0}}
    half = replace(SETUP, precision="fp16")
    bisector = bisector_of(World(doses={"precision": "cc"}, setup=half, metrics=lost))
    assert bisector.bisect().cause == "precision"
    assert "data" not in roles(bisector)
