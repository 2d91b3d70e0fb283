"""Ladders side by side: every worker is busy, no dose is run twice, a budget ends it."""

from __future__ import annotations

import pytest
from bisection.scripted_bisect import PlainStudies, ScriptedRunner
from bisection.scripted_world import World
from hypothesis import given
from hypothesis import strategies as st

from stabexp.bisection.dose_search import search_doses
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.plan import Plan
from stabexp.bisection.search import decide

WORLD = World(doses={"learning_rate": "ddcccsss", "clip_norm": "dddlcs", "batch_size": "iii"})
LADDERS = tuple(map(WORLD.ladder, ("learning_rate", "clip_norm", "batch_size", "warmup")))
PLAN = Plan(divergence=WORLD.crash, good_step=WORLD.good, steps=WORLD.setup.steps)


class Watching(ScriptedRunner):
    """Remembers how many trials ran at once."""

    most = 0

    def wait(self):
        self.most = max(self.most, self.busy)
        return super().wait()


def search(world=WORLD, ladders=LADDERS, *, studies=None, budget=None, runner=None, **options):
    runs = runner or Watching(world)
    return search_doses(
        ladders,
        studies=studies or PlainStudies(),
        runner=runs,
        spec_of=lambda ladder, index: PLAN.dose(ladder, index, from_step=PLAN.good_step),
        spent=lambda: budget is not None and runs.replayed_steps >= budget,
        **options,
    )


def test_every_ladder_is_decided_and_one_dose_of_each_runs_at_a_time():
    runner = Watching(WORLD)
    found = search(runner=runner)
    doses = {variable: answer.dose for variable, (answer, _) in found.items()}
    assert doses == {"learning_rate": 0.35, "clip_norm": 0.25, "batch_size": None, "warmup": None}
    assert runner.most == len(LADDERS)
    keys = [record.spec.key for record in runner.records]
    assert len(keys) == len(set(keys))
    assert {r.spec.key for _, records in found.values() for r in records} == set(keys)


@pytest.mark.parametrize(
    ("letters", "robust"),
    [("dddccs", True), ("dddlcs", True), ("dddcld", False), ("dddddc", True)],
)
def test_a_cure_is_robust_where_the_next_stronger_dose_keeps_the_crash_away_too(letters, robust):
    world = World(doses={"clip_norm": letters})
    answer, _ = search(world, (world.ladder("clip_norm"),))["clip_norm"]
    assert answer.decision.robust == robust


@pytest.mark.parametrize("budget", [0, 1, 100, 200])
def test_when_the_budget_is_spent_no_trial_starts_and_open_ladders_have_no_answer(budget):
    runner = Watching(WORLD)
    found = search(runner=runner, budget=budget)
    last = max((r.steps for r in runner.records), default=0)
    assert runner.replayed_steps <= budget + len(LADDERS) * max(last, 1)
    assert any(answer is None for answer, _ in found.values())
    for answer, records in found.values():
        assert answer is None or records
    if budget == 0:
        assert all(answer is None and not records for answer, records in found.values())


def test_what_a_trial_counts_as_is_up_to_the_caller():
    found = search(
        outcome_of=lambda r: "stalled" if r.spec.variable == "learning_rate" else r.outcome
    )
    answer, records = found["learning_rate"]
    assert answer.dose is None
    assert {record.outcome for record in records} >= {"diverged"}


def test_a_second_start_asks_nothing_again_and_finds_the_same(tmp_path):
    first_runner, second_runner = Watching(WORLD), Watching(WORLD)
    with DoseStudies(tmp_path / "optuna.db") as studies:
        search(runner=first_runner, studies=studies, budget=400)
    second_runner._finished = dict(first_runner._finished)
    with DoseStudies(tmp_path / "optuna.db") as studies:
        found = search(runner=second_runner, studies=studies)
    plain = search()
    for variable, (answer, records) in found.items():
        assert answer.decision == plain[variable][0].decision
        assert {r.spec.key for r in records} == {r.spec.key for r in plain[variable][1]}
    ran = [record.spec.key for record in first_runner.records + second_runner.records]
    assert len(ran) == len(set(ran))


@given(st.text("dlcsi", min_size=8, max_size=8), st.text("dlcsi", min_size=6, max_size=6))
def test_searching_side_by_side_finds_what_searching_alone_finds(rates, norms):
    world = World(doses={"learning_rate": rates, "clip_norm": norms})
    found = search(world, LADDERS[:2], runner=Watching(world))
    for ladder in LADDERS[:2]:
        alone = search(world, [ladder], runner=Watching(world))[ladder.variable][0]
        answer = found[ladder.variable][0]
        assert answer.decision == alone.decision
        assert answer.decision == decide(answer.outcomes, count=len(ladder.doses))
