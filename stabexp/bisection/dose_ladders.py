"""Climbs the ladders of the variables that a question is about, and says what each showed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stabexp.bisection.dose_facts import ladder_facts, slow_learners
from stabexp.bisection.dose_search import Searched, search_doses
from stabexp.bisection.facts import LadderFacts, Setup, healthy_norm
from stabexp.bisection.judging import noise
from stabexp.bisection.ladder import Ladder, ladder_for
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.plan import Plan
from stabexp.bisection.search import LadderAnswer
from stabexp.bisection.trials import TrialRunner
from stabexp.records import Divergence, Outcome, StepRecord, TrialRecord


@dataclass(frozen=True, kw_only=True)
class DoseLadders:
    """Searches doses from a checkpoint of one diverged run."""

    records: Sequence[StepRecord]
    divergence: Divergence
    setup: Setup
    dataset_size: int | None
    runner: TrialRunner
    open_studies: Callable[[str], DoseStudies]
    spent: Callable[[], bool]
    from_scratch: bool
    """Whether replays can start at step 0."""

    def climb(
        self, plan: Plan, variables: Sequence[str], *, from_step: int
    ) -> dict[str, LadderFacts]:
        """Return what the doses of each variable did from a checkpoint."""
        made = {variable: self._ladder(variable) for variable in variables}
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
            found[ladder.variable] = ladder_facts(
                ladder.variable,
                answers[ladder.variable],
                [record for record in trials.values() if record.spec.variable == ladder.variable],
                records=self.records,
                onset=self.divergence.onset,
                warmup_steps=self.setup.warmup_steps,
                steps=self.setup.steps,
                slow=slow,
            )
        return found

    def _slow_learners(self, trials: Iterable[TrialRecord]) -> dict[str, Outcome]:
        return slow_learners(list(trials), noise=noise(self.records, self.divergence.onset))

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
                spent=self.spent,
                outcome_of=lambda record: slow.get(record.spec.key, record.outcome),
            )

    def _ladder(self, variable: str) -> Ladder | LadderFacts:
        setup = self.setup
        if variable == "warmup" and not self.from_scratch:
            reason = "a ramp starts at step 0, whose checkpoint cannot be used"
            return LadderFacts(variable=variable, skipped=reason)
        made = ladder_for(
            variable,
            lr=max((r.lr for r in self.records if r.lr == r.lr), default=0.0),
            healthy_norm=healthy_norm(self.records, self.divergence.onset),
            clip_norm=setup.clip_norm,
            precision=setup.precision,
            batch_size=setup.batch_size,
            dataset_size=self.dataset_size,
            warmup_steps=setup.warmup_steps,
            total_steps=setup.steps,
        )
        if isinstance(made, Ladder):
            return made
        return LadderFacts(variable=variable, skipped=made.reason)
