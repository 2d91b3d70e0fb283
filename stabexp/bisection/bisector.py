"""One bisect, from the diverged run to the verdict: the tree asks, and replays answer.

The decision tree is walked with what is known. Where it needs replays, they are made, side by side
where they do not depend on each other, and it is walked again. So nothing is replayed that could
not change the verdict. What it ends at must still stand: the crash comes back with the old value,
the fix goes on training.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from stabexp.bisection import attribution
from stabexp.bisection.case import Case, Wishes
from stabexp.bisection.decision_tree import SILENT_TREE, TREE, Walk, walk
from stabexp.bisection.facts import NOTHING, Facts
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.outlook import standing
from stabexp.bisection.plan import Plan
from stabexp.bisection.proving import Proving
from stabexp.bisection.scope import Scope, scope
from stabexp.bisection.trials import TrialRunner
from stabexp.detectors import opinion
from stabexp.records import TrialSpec, Verdict


class Bisector(Proving):
    """Finds the cause of one divergence."""

    def __init__(
        self,
        case: Case,
        runner: TrialRunner,
        *,
        open_studies: Callable[[str], DoseStudies],
        wishes: Wishes | None = None,
    ) -> None:
        """Prepare a bisect.

        Args:
            case: The diverged run.
            runner: Runs and remembers trials.
            open_studies: Opens the dose searches of one phase, by the phase's name.
            wishes: What the user asked for.
        """
        self.case = case
        self.runner = runner
        self.open_studies = open_studies
        self.wishes = wishes or Wishes()
        self.tree = SILENT_TREE if case.divergence.detector == NOTHING else TREE
        self.facts = Facts(
            setup=case.setup,
            divergence=case.divergence,
            records=case.records,
            good_step=0,
            variables=tuple(self.wishes.variables),
        )
        self._started = time.monotonic()

    def bisect(self) -> Verdict:
        """Return the verdict; every trial is on disk by then."""
        self._started = time.monotonic()
        phase = self.runner.progress.phase
        phase("looking for the last good checkpoint", "the decision tree")
        plan = self._survey()
        while True:
            plan = self._walk(plan)
            if self.spent():
                self.runner.progress.note(f"the budget of {self.wishes.budget} is spent")
            if self.prove(plan):
                break
        records = self.case.records
        telemetry = opinion(records, self.facts.divergence, asdict(self.case.setup))
        return attribution.verdict(
            self.facts,
            run_id=self.case.run_id,
            bisect_id=self.runner.bisect.run_id,
            telemetry=telemetry,
            fix=self.fix,
            all_trials=self.runner.records,
            seconds=time.monotonic() - self._started,
            command=self.case.command,
            tree=self.tree,
        )

    def _walk(self, plan: Plan) -> Plan:
        """Walk the tree to its end, making the replays it needs; return where they start."""
        while (walked := walk(self.facts, self.tree)).waiting:
            node = walked.waiting
            if not self.spent():
                self.runner.progress.phase(self.tree[node].question, "the verdict")
                self.tell(plan, walked)
                plan = self.gather(node, plan)
            self._gathered(node)
        return plan

    def _survey(self) -> Plan:
        survey = self.runner.survey()
        for warning in survey.warnings:
            self.runner.progress.note(f"warning: {warning}")
        chosen: Scope = scope(
            survey.starts or (survey.good_step,),
            self.case.divergence,
            last_step=max((r.step for r in self.case.records), default=None),
            good=self.wishes.good,
            bad=self.wishes.bad,
            skip=self.wishes.skip,
        )
        for notice in chosen.notices:
            self.runner.progress.note(notice)
        good = survey.good_step if chosen.good is None else chosen.good
        if good not in chosen.starts:
            good = max((step for step in chosen.starts if step <= good), default=chosen.starts[0])
        self.starts = chosen.starts
        self.facts = replace(self.facts, good_step=good, divergence=chosen.divergence)
        return Plan(
            divergence=chosen.divergence,
            good_step=good,
            steps=self.case.setup.steps,
            own_order=self.case.setup.streamed,
        )

    def tell(self, plan: Plan, walked: Walk, planned: Sequence[TrialSpec] = ()) -> None:
        """Tell what is known by now, and what the rest is expected to cost."""
        steps, seconds = self.wishes.budget.left(
            self.runner.replayed_steps, time.monotonic() - self._started
        )
        told = standing(
            self.facts,
            plan,
            self.tree,
            walked,
            planned=planned,
            thorough=self.wishes.thorough,
            budget_steps=steps,
            budget_seconds=seconds,
        )
        self.runner.progress.standing(told)

    def _gathered(self, *nodes: str) -> None:
        self.facts = replace(self.facts, gathered=self.facts.gathered | set(nodes))

    def spent(self) -> bool:
        """Return whether no further trial may start, and remember it for the verdict."""
        elapsed = time.monotonic() - self._started
        spent = self.wishes.budget.spent(self.runner.replayed_steps, elapsed)
        self.facts = replace(self.facts, spent=self.facts.spent or spent)
        return spent
