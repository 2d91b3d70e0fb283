"""One bisect, from the diverged run to the verdict: controls, placebos, doses, reversal, proof.

Each phase could make the next ones meaningless, so it is judged before they begin. Within a phase
all trials run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from stabexp.bisection import attribution
from stabexp.bisection.decision_tree import walk
from stabexp.bisection.dose_search import Searched, search_doses
from stabexp.bisection.facts import Facts, LadderFacts, Setup, healthy_norm
from stabexp.bisection.judging import noise
from stabexp.bisection.ladder import Ladder, ladder_for
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.plan import Plan, patch_for
from stabexp.bisection.search import LadderAnswer
from stabexp.bisection.trials import TrialRunner
from stabexp.detectors import opinion
from stabexp.records import VARIABLES, Divergence, Outcome, StepRecord, TrialRecord, Verdict


@dataclass(frozen=True, kw_only=True)
class Case:
    """The diverged run, as the bisect needs it."""

    run_id: str
    records: Sequence[StepRecord]
    divergence: Divergence
    setup: Setup
    dataset_size: int | None
    own_loop: bool
    """True when the training function is the user's."""
    source: str
    """How to name the experiment in a command."""


class Bisector:
    """Finds the cause of one divergence."""

    def __init__(
        self,
        case: Case,
        runner: TrialRunner,
        *,
        open_studies: Callable[[str], DoseStudies],
        variables: Sequence[str],
        budget: int | None = None,
    ) -> None:
        """Prepare a bisect.

        Args:
            case: The diverged run.
            runner: Runs and remembers trials.
            open_studies: Opens the dose searches of one phase, by the phase's name.
            variables: What to change, one at a time.
            budget: The most steps to replay; when it is spent, no further trial starts.
        """
        self.case = case
        self.runner = runner
        self.open_studies = open_studies
        self.variables = variables
        self.budget = budget
        self.facts = Facts(
            setup=case.setup, divergence=case.divergence, records=case.records, good_step=0
        )
        self.fix: Mapping[str, Any] = {}
        self.from_scratch = True
        """Whether replays can start at step 0."""

    def bisect(self) -> Verdict:
        """Return the verdict; every trial is on disk by then."""
        started = time.monotonic()
        phase = self.runner.progress.phase
        phase("looking for the last good checkpoint", "controls, placebos, doses, proof")
        survey = self.runner.survey()
        good = survey.good_step
        self.from_scratch = survey.from_scratch
        for warning in survey.warnings:
            self.runner.progress.note(f"warning: {warning}")
        plan = Plan(divergence=self.case.divergence, good_step=good, steps=self.case.setup.steps)
        self.facts = replace(self.facts, good_step=good)
        phase(f"controls from step {good}", "placebos, doses, proof")
        self._controls(plan)
        if not self._ended():
            phase("placebos", "doses, proof")
            self._placebos(plan, from_step=good)
        if not self._ended():
            phase(f"doses of {', '.join(self.variables)}", "proof")
            self._ladders(plan, from_step=good)
            if good > 0 and self.from_scratch and not self._any_cure() and not self._spent():
                self._from_scratch(plan)
            if self._spent():
                self.runner.progress.note(f"the budget of {self.budget} replayed steps is spent")
            self._match_placebos(plan)
            self._data(plan)
            self._prove(plan)
        records = self.case.records
        telemetry = opinion(records, self.case.divergence, asdict(self.case.setup))
        return attribution.verdict(
            self.facts,
            run_id=self.case.run_id,
            bisect_id=self.runner.bisect.run_id,
            telemetry=telemetry,
            fix=self.fix,
            all_trials=self.runner.records,
            seconds=time.monotonic() - started,
            source=self.case.source,
        )

    def _spent(self) -> bool:
        """Return whether no further trial may start, and remember it for the verdict."""
        spent = self.budget is not None and self.runner.replayed_steps >= self.budget
        self.facts = replace(self.facts, spent=self.facts.spent or spent)
        return spent

    def _placebos(self, plan: Plan, *, from_step: int) -> None:
        if not self._spent() and all(r.spec.from_step != from_step for r in self.facts.placebos):
            ran = self.runner.run(plan.placebos(from_step))
            self.facts = replace(self.facts, placebos=(*self.facts.placebos, *ran))

    def _from_scratch(self, plan: Plan) -> None:
        """Try every variable from step 0, where control and placebos must crash as well."""
        self.runner.progress.note(
            "nothing cures from the last good checkpoint; its state may be damaged "
            "already, so every variable is tried again from step 0"
        )
        if all(record.spec.from_step != 0 for record in self.facts.controls):
            control = self.runner.run([plan.control(0)])
            self.facts = replace(self.facts, controls=(*self.facts.controls, *control))
        if not self._ended():
            self._placebos(plan, from_step=0)
        if not self._ended():
            self._ladders(plan, from_step=0)

    def _controls(self, plan: Plan) -> None:
        starts = [plan.good_step]
        if plan.good_step > 0 and self.from_scratch and "warmup" in self.variables:
            starts.append(0)  # warmup trials start from scratch, so that must reproduce too
        specs = [plan.control(step) for step in starts]
        self.facts = replace(self.facts, controls=self.runner.run(specs))

    def _ended(self) -> bool:
        """Return whether the tree ends before it asks about cures."""
        _, path = walk(self.facts)
        return path[-1].node in {"control", "placebo"}

    def _any_cure(self) -> bool:
        return any(ladder.cured for ladder in self.facts.ladders.values())

    def _ladders(self, plan: Plan, *, from_step: int) -> None:
        made = {variable: self._ladder(variable) for variable in self.variables}
        found = {v: ladder for v, ladder in made.items() if isinstance(ladder, LadderFacts)}
        ladders = [ladder for ladder in made.values() if isinstance(ladder, Ladder)]
        again, slow, searches = ladders, dict[str, Outcome](), 0
        answers: dict[str, LadderAnswer | None] = {}
        trials: dict[str, TrialRecord] = {}
        while again:
            # Surviving is not enough. What a trial achieved is only known next to the best one, so
            # the ladders of those that hardly learn are searched on with that knowledge, until no
            # trial turns out to be one.
            for variable, (answer, records) in self._search(
                plan, again, from_step=from_step, slow=slow, number=searches
            ).items():
                answers[variable] = answer
                trials |= {record.spec.key: record for record in records}
            searches += 1
            known, slow = slow, self._slow_learners(trials.values())
            news = {trials[key].spec.variable for key in slow if known.get(key) != slow[key]}
            again = [ladder for ladder in ladders if ladder.variable in news]
        for ladder in ladders:
            found[ladder.variable] = attribution.ladder_facts(
                ladder.variable,
                answers[ladder.variable],
                [record for record in trials.values() if record.spec.variable == ladder.variable],
                records=self.case.records,
                onset=self.case.divergence.onset,
                warmup_steps=self.case.setup.warmup_steps,
                steps=self.case.setup.steps,
                slow=slow,
                unanswered=f"the budget of {self.budget} replayed steps ran out",
            )
        self.facts = replace(self.facts, ladders=found)

    def _slow_learners(self, trials: Iterable[TrialRecord]) -> dict[str, Outcome]:
        scatter = noise(self.case.records, self.case.divergence.onset)
        return attribution.slow_learners(list(trials), noise=scatter)

    def _search(
        self,
        plan: Plan,
        ladders: Sequence[Ladder],
        *,
        from_step: int,
        slow: Mapping[str, Outcome],
        number: int,
    ) -> Searched:
        # What a study was told is final, so each state of knowledge has studies of its own.
        phase = f"from-{from_step}" + (f"-learning-{number}" if number else "")
        with self.open_studies(phase) as studies:
            studies.reopen()
            return search_doses(
                ladders,
                studies=studies,
                runner=self.runner,
                spec_of=lambda ladder, index: plan.dose(ladder, index, from_step=from_step),
                budget=self.budget,
                outcome_of=lambda record: slow.get(record.spec.key, record.outcome),
            )

    def _match_placebos(self, plan: Plan) -> None:
        """Give the cure placebos of its own kind: from the step that its trial started at.

        Just before the crash a small change comes too late to matter, and from step 0 it may not.
        So a cure from scratch, as every warmup is, proves nothing against placebos from later on.
        """
        cause, _ = walk(self.facts)
        cure = self.facts.ladder(cause).cure
        if cure is not None:
            start = self.facts.ladder(cause).trial(cure.trial).spec.from_step
            self._placebos(plan, from_step=start)

    def _data(self, plan: Plan) -> None:
        """Ask whether the crash hangs on the samples it began with, before a setting is named.

        When it stays away without them, as many other samples are the placebo: if it stays away
        without those too, nothing was learned but that the run is at the edge.
        """
        cause, _ = walk(self.facts)
        if cause not in VARIABLES or cause == "precision" or self._spent():
            return
        first, last = plan.suspect_steps()
        (record,) = self.runner.run([plan.data(first, last, role="data")])
        width = last - first + 1
        if record.outcome == "cured" and first - width >= 0:
            others = plan.data(first - width, first - 1, role="placebo")
            ran = self.runner.run([others])
            self.facts = replace(self.facts, placebos=(*self.facts.placebos, *ran))
        self.facts = replace(self.facts, data=record)

    def _prove(self, plan: Plan) -> None:
        """Put the bad value back, and run the fix as a user would; both only for a named cause."""
        cause, _ = walk(self.facts)
        cure = self.facts.ladder(cause).cure
        if cause not in VARIABLES or cure is None:
            return
        trial = self.facts.ladder(cause).trial(cure.trial)
        reversal = plan.reversal(trial.spec)
        self.fix = self._patch(cause, cure.dose)
        if self._spent():
            return
        self.runner.progress.phase(f"proof that it is {cause}", "the verdict")
        specs = [plan.proof(self.fix, cure=trial.spec), *([reversal] if reversal else [])]
        proof, *rest = self.runner.run(specs)
        self.facts = replace(self.facts, proof=proof, reversal=rest[0] if rest else None)
        if proof.outcome in {"cured", "inconclusive"} or cure.stronger_dose is None:
            return
        if self._spent():
            return
        self.runner.progress.note(
            "the mildest dose fails from scratch; trying the next stronger one"
        )
        self.fix = self._patch(cause, cure.stronger_dose)
        (proof,) = self.runner.run([plan.proof(self.fix, cure=trial.spec)])
        self.facts = replace(self.facts, proof=proof, fix_dose=cure.stronger_dose)

    def _patch(self, variable: str, dose: Any) -> dict[str, Any]:
        return patch_for(variable, dose, setup=self.case.setup, own_loop=self.case.own_loop)

    def _ladder(self, variable: str) -> Ladder | LadderFacts:
        setup = self.case.setup
        if variable == "warmup" and not self.from_scratch:
            reason = "a ramp starts at step 0, whose checkpoint cannot be used"
            return LadderFacts(variable=variable, skipped=reason)
        made = ladder_for(
            variable,
            lr=max((r.lr for r in self.case.records if r.lr == r.lr), default=0.0),
            healthy_norm=healthy_norm(self.case.records, self.case.divergence.onset),
            clip_norm=setup.clip_norm,
            precision=setup.precision,
            batch_size=setup.batch_size,
            dataset_size=self.case.dataset_size,
            warmup_steps=setup.warmup_steps,
            total_steps=setup.steps,
        )
        if isinstance(made, Ladder):
            return made
        return LadderFacts(variable=variable, skipped=made.reason)
