"""What holds of every bisect: budgets, interrupted searches, and whatever the trials do."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from bisection.scripted_bisect import (
    ScriptedRunner,
    assert_well_formed,
    bisect,
    bisector_of,
    case_of,
)
from bisection.scripted_facts import location, rule
from bisection.scripted_runs import (
    BURSTS,
    FLAT,
    HALF,
    LOST,
    LOWER_RATE,
    NO_WARMUP,
    NOISY,
    OVERFLOW,
    RISING,
    SUDDEN,
    TINY,
    WILD,
)
from bisection.scripted_world import SETUP, World, step_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stabexp.bisection.bisector import Bisector
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.trials import Progress, TrialRunner
from stabexp.records import VARIABLES, TrialSpec, from_json, to_json
from stabexp.tracking.run_directory import RunDirectory

TESTED = rule(cure={"variable": "gradient_scale", "dose": 0.25})
WORLDS = {
    "warmup": World(
        doses=LOWER_RATE | {"warmup": "ddcc", "clip_norm": "dccccs"},
        setup=NO_WARMUP,
        records=BURSTS,
    ),
    "clip_norm": World(doses=LOWER_RATE | {"clip_norm": "dccccs"}, records=BURSTS),
    "precision": World(doses=LOWER_RATE | {"precision": "cc"}, setup=HALF, metrics=OVERFLOW),
    "batch_size": World(doses=LOWER_RATE | {"batch_size": "dcc"}, setup=TINY, metrics=NOISY),
    "learning_rate": World(doses=LOWER_RATE),
    "schedule": World(doses=LOWER_RATE, tests={"hold_rate": "c"}, records=RISING),
    "implementation": World(doses=LOWER_RATE, tests={"gradient_scale": "c"}, rules=[TESTED]),
    "loss_function": World(
        doses=LOWER_RATE, tests={"safe_operation": "c"}, locate=location(module="")
    ),
    "data": World(doses=LOWER_RATE, crash=SUDDEN, culprits=frozenset({80, 83})),
    "marginal": World(doses=LOWER_RATE, placebos="dc"),
}


@pytest.mark.parametrize("cause", WORLDS)
def test_a_budget_that_runs_out_never_names_another_cause_than_an_unlimited_one(cause):
    whole = bisector_of(WORLDS[cause])
    assert whole.bisect().cause == cause
    for budget in range(0, whole.runner.replayed_steps, 60):
        bisector = bisector_of(WORLDS[cause], budget=budget)
        verdict = bisector.bisect()
        assert verdict.cause in {cause, "inconclusive"}, (budget, verdict.summary)
        if verdict.cause in VARIABLES:
            assert verdict.fix_proved or verdict.confidence <= 0.75
        assert_well_formed(verdict, bisector)


def test_a_budget_that_is_spent_starts_no_further_trial_and_says_what_is_possible():
    bisector = bisector_of(World(doses=LOWER_RATE), budget=1)
    verdict = bisector.bisect()
    assert [record.spec.role for record in bisector.runner.records] == ["control"]
    assert verdict.cause == "inconclusive"
    assert any("the budget of 1 steps is spent" in note for note in bisector.runner.notes)
    assert verdict.hypotheses
    assert verdict.hypotheses[0].cause == "learning_rate"
    assert "the step records suggest it" in verdict.hypotheses[0].why


def test_a_cause_that_the_budget_left_unproved_is_named_without_confidence():
    full = bisector_of(World(doses=LOWER_RATE))
    full.bisect()
    doses = sum(r.steps for r in full.runner.records if r.spec.role not in {"proof", "reversal"})
    verdict = bisect(World(doses=LOWER_RATE), budget=doses)
    assert (verdict.cause, verdict.confidence, verdict.fix_proved) == ("learning_rate", 0.75, False)
    assert verdict.path[-1].node == "proof"
    assert verdict.path[-1].answer == "not tried"
    assert verdict.path[-1].detail == "the budget ran out"


def test_a_cause_that_the_budget_left_unproved_still_comes_with_its_fix():
    full = bisector_of(World(doses=LOWER_RATE))
    full.bisect()
    doses = sum(r.steps for r in full.runner.records if r.spec.role not in {"proof", "reversal"})
    assert bisect(World(doses=LOWER_RATE), budget=doses).fix == {"optimizer.lr": 0.035}


@pytest.mark.parametrize(
    ("world", "ranked"),
    [
        pytest.param(World(), [("learning_rate", "the step records")], id="what the records say"),
        pytest.param(
            World(doses={"learning_rate": "ddddcddd"}, crash=SUDDEN),
            [("learning_rate", "cures, but not robustly")],
            id="a cure that may be luck",
        ),
        pytest.param(
            World(doses={"learning_rate": "ddddlldd"}, crash=SUDDEN),
            [("learning_rate", "delays the crash")],
            id="a dose that delays",
        ),
        pytest.param(
            World(doses=LOWER_RATE, crash=SUDDEN, reversal="c"),
            [("learning_rate", "×0.35 cures robustly")],
            id="a cure that is not the cause",
        ),
        pytest.param(
            World(rules=[rule("double_softmax")]),
            [("learning_rate", "the step records"), ("implementation", "double_softmax at")],
            id="a broken rule that does not explain the crash",
        ),
        pytest.param(
            World(locate=location(), tests={"safe_operation": "d"}),
            [("learning_rate", "the step records"), ("implementation", "log of 0 is -inf")],
            id="an operation that was seen",
        ),
        pytest.param(
            World(crash=SUDDEN, culprits=frozenset({80}), fragile=True),
            [("data", "the state was fragile")],
            id="a hard batch",
        ),
        pytest.param(
            World(doses={"learning_rate": "dddlsddd"}, crash=SUDDEN, placebos="cd"),
            [],
            id="nothing speaks for anything",
        ),
    ],
)
def test_without_a_verdict_what_is_still_possible_is_ranked(world, ranked):
    verdict = bisect(world)
    assert verdict.cause in {"inconclusive", "marginal"}
    assert [item.cause for item in verdict.hypotheses] == [cause for cause, _ in ranked]
    for item, (_, why) in zip(verdict.hypotheses, ranked, strict=True):
        assert why in item.why


def test_a_dose_that_hardly_learns_next_to_the_best_is_searched_on():
    # ×0.1 and ×0.25 survive as frozen weights do; ×0.35 is what learns.
    world = World(
        doses={"learning_rate": "ddcccccc"},
        progress={"learning_rate": [0, 0, 1.0, 1.0, 0.05, 0.02, 0.01, 0.0]},
    )
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    cure = bisector.facts.ladder("learning_rate").cure
    assert cure is not None
    assert (cure.dose, cure.robust) == (0.35, True)
    assert verdict.cause == "learning_rate"
    assert_well_formed(verdict, bisector)


@pytest.mark.parametrize(
    ("letters", "made"),
    [
        ("dccccccc", [0.05, 1.0, 0.1, 0.05, 1.0, 0.05, 0.05, 0.05]),
        ("ccccccdc", [0.1, 0.1, 0.1, 1.0, 1.0, 0.05, 0.1, 0.1]),
        ("cccccddc", [1.0, 0.05, 1.0, 0.1, 0.1, 1.0, 0.05, 1.0]),
    ],
)
def test_searching_goes_on_until_no_cure_hardly_learns(letters, made):
    world = World(doses={"learning_rate": letters}, progress={"learning_rate": made})
    bisector = bisector_of(world)
    assert_well_formed(bisector.bisect(), bisector)


def test_a_trial_that_is_asked_for_twice_is_counted_once():
    # Control and placebos from step 0 stand against the ramps, and again after walking back.
    world = World(earlier={0: LOWER_RATE}, doses={"warmup": "dddd"}, setup=NO_WARMUP)
    bisector = bisector_of(world)
    verdict = bisector.bisect()
    keys = [record.spec.key for record in bisector.runner.records]
    assert verdict.trials == len(set(keys))
    assert verdict.replayed_steps == bisector.runner.replayed_steps


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
    world = World(doses=LOWER_RATE | {"clip_norm": "dddccs"})
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


class Run(list):
    """Step records that do not fill the screen when a test fails."""

    def __repr__(self):
        return "a run"


RUNS = [Run(run) for run in (BURSTS, step_records(), RISING, WILD, LOST, FLAT)]
letters = st.sampled_from("dlcsi")


def rungs(count):
    return st.text(letters, min_size=count, max_size=count)


@st.composite
def tables(draw, setup):
    return {
        "learning_rate": draw(rungs(8)),
        "clip_norm": draw(rungs(6)),
        "batch_size": draw(rungs(3)),
        "precision": draw(rungs(2 if setup.precision == "fp16" else 1)),
        "warmup": draw(rungs(3 if setup.warmup_steps else 4)),
        "hold_rate": draw(letters),
        "optimizer_state": draw(letters),
        "usual_init": draw(letters),
        "init_scale": draw(letters),
        "eager": draw(letters),
        "adam_eps": draw(letters),
        "replace_samples": draw(letters),
        "weight_decay": draw(letters),
        "safe_operation": draw(letters),
        "gradient_scale": draw(letters),
    }


PATTERNS = ["sudden_jump", "exponential_growth", "plateau"]
PLACES = [
    location(),
    location(operation="div", source="train.py:33"),
    location(phase="input"),
    location(phase="parameter"),
    location(phase="optimizer"),
    location(reason="exp_overflow"),
    location(reason="overflow", dtype="float32", sample_ids=[]),
    location(reason="overflow", step=45),
]


@st.composite
def worlds(draw):
    setup = replace(
        SETUP,
        warmup_steps=draw(st.sampled_from([0, 20])),
        precision=draw(st.sampled_from(["fp32", "fp16"])),
        batch_size=draw(st.sampled_from([1, 32])),
        weight_decay=draw(st.sampled_from([0.0, 2.0])),
        trivial_loss=draw(st.sampled_from([None, 2.3])),
    )
    table = draw(tables(setup))
    made = st.floats(0.0, 1.0)
    good = draw(st.sampled_from([0, 30]))
    rules = [TESTED, rule("input_range", cure=TESTED["cure"], strength="suspicious"), rule()]
    rules.append(rule("double_softmax"))
    return World(
        doses=table,
        tests=table,
        pairs={"precision + learning_rate": draw(letters)},
        earlier=draw(st.sampled_from([{}, {0: LOWER_RATE}])) or {20: draw(tables(setup))},
        starts=draw(st.sampled_from([(), (20, 30), (0, 20, 30)])) if good else (),
        placebos=draw(st.sampled_from(["dd", "sl", "ii", "cd", "dc"])),
        earlier_placebos=draw(st.sampled_from([{}, {0: "cd"}, {20: "dc"}])),
        culprits=draw(st.sampled_from([frozenset(), frozenset({80}), frozenset({80, 83})])),
        fragile=draw(st.booleans()),
        touchy=draw(st.booleans()),
        data=draw(st.sampled_from(["", "", "i", "c"])),
        scan=draw(st.sampled_from(["seen", "blind", "pairs", "broken"])),
        locate=draw(st.sampled_from([None, None, None, *PLACES])),
        kept_safe={"log@train.py:31": draw(st.sampled_from(PLACES))},
        rules=draw(st.lists(st.sampled_from(rules), max_size=2)),
        controls=draw(
            st.sampled_from([{}, {}, {}, {}, *({step: {"mismatch": 2}} for step in (0, 30))])
        ),
        unwatched=draw(st.sampled_from([{}, {"mismatch": None}])),
        reversal=draw(letters),
        proofs=draw(st.text(letters, min_size=1, max_size=3)),
        orders=draw(letters),
        repeats=draw(letters),
        progress={
            v: draw(st.lists(made, min_size=len(table[v]), max_size=len(table[v])))
            for v in VARIABLES
        },
        metrics=draw(st.sampled_from([{}, OVERFLOW, NOISY])),
        records=draw(st.sampled_from(RUNS)),
        crash=replace(SUDDEN, pattern=draw(st.sampled_from(PATTERNS))),
        setup=setup,
        good=good,
        dataset_size=draw(st.sampled_from([10_000, None])),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    worlds(),
    st.one_of(st.none(), st.integers(0, 3000)),
    st.sets(st.sampled_from(VARIABLES), min_size=1),
    st.sampled_from([{}, {}, {"seeds": 1}, {"thorough": True}]),
)
def test_whatever_the_trials_do_the_verdict_is_well_formed(world, budget, chosen, wishes):
    variables = [variable for variable in VARIABLES if variable in chosen]
    bisector = bisector_of(world, variables=variables, budget=budget, **wishes)
    assert_well_formed(bisector.bisect(), bisector)
