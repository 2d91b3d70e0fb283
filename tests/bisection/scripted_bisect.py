"""Bisects of scripted worlds, in memory, and what holds of every verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from bisection.scripted_world import World

from stabexp.bisection import attribution
from stabexp.bisection.bisector import Bisector
from stabexp.bisection.budget import Budget
from stabexp.bisection.case import Case, Wishes
from stabexp.bisection.decision_tree import walk
from stabexp.bisection.ladder import Ladder
from stabexp.bisection.optuna_study import Question
from stabexp.bisection.search import LadderAnswer, decide, next_questions
from stabexp.bisection.trials import Progress, Survey, TrialRunner
from stabexp.records import (
    BLAMELESS,
    VARIABLES,
    Outcome,
    StepRecord,
    TrialRecord,
    TrialSpec,
    Verdict,
)


class ScriptedRunner(TrialRunner):
    """Looks trials up in a world instead of training; nothing is written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.notes: list[str] = []
        self.progress = Progress(note=self.notes.append)
        self.bisect: Any = SimpleNamespace(run_id="b1")
        self.records = []
        self.replayed_steps = 0
        self._queue: deque[TrialRecord] = deque()
        self._finished = {}

    @property
    def busy(self) -> int:
        return len(self._queue)

    def submit(self, spec: TrialSpec) -> None:
        if spec.key not in self._finished:
            proofs = sum(record.spec.role == "proof" for record in self.records)
            shown = self.world.trial(spec, proofs_before=proofs)
            self._finished[spec.key] = replace(shown, number=len(self._finished))
            self.replayed_steps += max(shown.steps, 0)
        self._queue.append(self._finished[spec.key])

    def wait(self) -> TrialRecord:
        self.records.append(self._queue.popleft())
        return self.records[-1]

    def recall(self, key: str) -> TrialRecord:
        return self._finished[key]

    def steps_of(self, record: TrialRecord) -> list[StepRecord]:
        return self.world.steps_of(record)

    def survey(self) -> Survey:
        starts = self.world.checkpoints
        return Survey(good_step=self.world.good, from_scratch=0 in starts, starts=starts)


class PlainStudies:
    """Dose searches kept in memory, with the interface of `DoseStudies`."""

    def __init__(self) -> None:
        self.told: dict[str, dict[int, dict[str, Any]]] = {}
        self.open: dict[str, set[int]] = {}

    def __enter__(self) -> PlainStudies:
        return self

    def __exit__(self, *error: object) -> None:
        assert not any(self.open.values()), "questions were left open"

    def reopen(self) -> int:
        return 0

    def _outcomes(self, ladder: Ladder) -> dict[int, Outcome]:
        return {i: told["outcome"] for i, told in self.finished(ladder).items()}

    def ask(self, ladder: Ladder) -> Question | None:
        running = self.open.setdefault(ladder.variable, set())
        count = len(ladder.doses)
        found = next_questions(self._outcomes(ladder), count=count, running=running)
        if not found:
            return None
        running.add(found[0])
        return Question(ladder=ladder, index=found[0], number=found[0])

    def tell(self, question: Question, outcome: Outcome, *, attributes: Mapping[str, Any]) -> None:
        variable = question.ladder.variable
        self.open[variable].remove(question.index)
        told = {**attributes, "outcome": outcome}
        self.told.setdefault(variable, {})[question.index] = told

    def answer(self, ladder: Ladder) -> LadderAnswer | None:
        outcomes = self._outcomes(ladder)
        decision = decide(outcomes, count=len(ladder.doses))
        if decision is None:
            return None
        return LadderAnswer(ladder=ladder, decision=decision, outcomes=outcomes)

    def finished(self, ladder: Ladder) -> dict[int, dict[str, Any]]:
        return self.told.get(ladder.variable, {})


def case_of(world: World, *, own_loop: bool = False) -> Case:
    return Case(
        run_id="r1",
        records=world.records,
        divergence=world.crash,
        setup=world.setup,
        dataset_size=world.dataset_size,
        own_loop=own_loop,
        command=("stabexp", "run", "exp.yaml"),
    )


def bisector_of(
    world: World,
    *,
    variables: Sequence[str] = VARIABLES,
    budget: int | None = None,
    own_loop: bool = False,
    **wishes: Any,
) -> Bisector:
    phases: dict[str, PlainStudies] = {}
    return Bisector(
        case_of(world, own_loop=own_loop),
        ScriptedRunner(world),
        open_studies=lambda phase: phases.setdefault(phase, PlainStudies()),  # type: ignore[arg-type,return-value]
        wishes=Wishes(variables=variables, budget=Budget(steps=budget), **wishes),
    )


def bisect(world: World, **options: Any) -> Verdict:
    return bisector_of(world, **options).bisect()


def assert_well_formed(verdict: Verdict, bisector: Bisector) -> None:
    """What holds of every verdict, whatever the trials did."""
    facts = bisector.facts
    known = {record.spec.key: record for record in bisector.runner.records}
    decisive = [step for step in verdict.path if step.decisive]
    assert decisive == [verdict.path[-1]]
    assert 0.0 <= verdict.confidence <= 1.0
    assert all(key in known for step in verdict.path for key in step.trials)
    assert all(key in known for item in verdict.ruled_out for key in item.trials)
    assert verdict.trials == len(known)
    assert verdict.summary
    assert not any(word in verdict.summary.lower() for word in ("none", "nan", "..", " ."))
    assert len({step.node for step in verdict.path}) == len(verdict.path)
    assert all(item.variable != verdict.cause for item in verdict.ruled_out)
    assert all(cure.trial not in facts.ladder(cure.variable).slow for cure in verdict.cures)
    weights = [item.weight for item in verdict.hypotheses]
    assert weights == sorted(weights, reverse=True)
    assert not {item.cause for item in verdict.hypotheses} & set(BLAMELESS)
    if verdict.cause == "inconclusive":
        assert verdict.confidence == 0.0
    if verdict.cause in BLAMELESS:
        assert verdict.fix == {}
        assert not verdict.fix_proved
        assert verdict.culprit is None
        return
    assert verdict.hypotheses == ()
    assert_blame_is_earned(verdict, bisector)


def _went_on(bisector: Bisector) -> bool:
    """Return whether the fix was followed to the horizon, or to the run's own planned end."""
    facts = bisector.facts
    if facts.proof is not None:
        return facts.proof.outcome == "cured"
    cure = attribution.cure_of(facts, walk(facts, bisector.tree))
    return cure is not None and cure.spec.until_step == facts.setup.steps and not facts.spent


def assert_blame_is_earned(verdict: Verdict, bisector: Bisector) -> None:
    """Nobody is blamed without a control that crashes, and a placebo that does as well."""
    facts = bisector.facts
    known = {record.spec.key: record for record in bisector.runner.records}
    assert facts.controls
    assert all(r.divergence for r in facts.controls)
    assert all(r.mismatch is None or r.mismatch > facts.divergence.onset for r in facts.controls)
    assert {item.variable for item in verdict.ruled_out} == set(VARIABLES) - {verdict.cause}
    assert verdict.fix_proved == _went_on(bisector)
    asked = [step.node for step in verdict.path]
    if "placebo" in asked:
        nulls = [r for r in facts.placebos if r.spec.variable != "shuffle" or "order" in asked]
        assert all(record.outcome != "cured" for record in nulls)
    if "proof" in asked and facts.proof is not None:
        assert facts.proof.divergence is None
        assert not (facts.proof.spec.patch and facts.proof.outcome in {"stalled", "delayed"})
        assert facts.proof.outcome == "cured" or verdict.confidence <= 0.75
    cure = facts.ladder(verdict.cause).cure
    if cure is None:
        without_proof = verdict.cause in {"not_learning", "overfitting"}
        assert verdict.culprit is not None or "proof" in asked or without_proof
        return
    assert cure.robust
    assert known[cure.trial].outcome == "cured"
    assert known[cure.trial].spec.from_step in {r.spec.from_step for r in facts.controls}
    back = next((step for step in verdict.path if step.node == "reversal"), None)
    if back is not None and back.answer == "yes":
        assert all(known[key].divergence for key in back.trials)
    elif facts.reversal is not None and facts.reversal.outcome in {"cured", "stalled"}:
        assert verdict.cause == "clip_norm", "a burst as large need not come in that time"
        assert verdict.confidence <= 0.75
    assert verdict.fix or facts.spent


def roles(bisector: Bisector) -> list[str]:
    """Return the roles of the trials, in order."""
    return [record.spec.role for record in bisector.runner.records]


def asked(bisector: Bisector, *roles: str) -> list[str]:
    """Return what was changed in the trials of some roles, in order."""
    return [
        "+".join(change.variable for change in record.spec.changes)
        for record in bisector.runner.records
        if record.spec.role in roles
    ]


def nodes(verdict: Verdict) -> dict[str, str]:
    """Return the answers on the way to a verdict, by question."""
    return {step.node: step.answer for step in verdict.path}


def judged(world: World, **options: Any) -> tuple[Verdict, Bisector]:
    """Bisect a world; return the verdict, which is well formed, and what made it."""
    bisector = bisector_of(world, **options)
    verdict = bisector.bisect()
    assert_well_formed(verdict, bisector)
    return verdict, bisector
