"""Which replays each question of the decision tree needs, and making them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import combinations

from stabexp.bisection import time_search
from stabexp.bisection.case import Case, Wishes
from stabexp.bisection.dose_ladders import DoseLadders
from stabexp.bisection.evidence import implementation, reproduction, step_size
from stabexp.bisection.facts import NOTHING, Facts
from stabexp.bisection.optuna_study import DoseStudies
from stabexp.bisection.plan import SEARCH_LEAST, Plan
from stabexp.bisection.sample_search import search_samples
from stabexp.bisection.tensor_difference import first_difference
from stabexp.bisection.trials import TrialRunner
from stabexp.detectors import opinion
from stabexp.records import Change, TrialRecord

WALK_BACK = Change(variable="learning_rate", dose=0.1)
"""What is tried from earlier checkpoints when nothing cures from the last good one."""
INITIAL = (
    Change(variable="usual_init", dose="on"),
    Change(variable="init_scale", dose=0.25),
    Change(variable="init_scale", dose=0.05),
)
"""Changes of the initial weights, the most sparing first."""
SAFE_AT_ONCE = 3
"""Operations of one formula that are kept safe together at most."""
MORE_ORDERS, MANY_ORDERS = (2, 3), (2, 3, 4, 5)
"""Orders of the data to try besides the first, and those where few samples make an update."""
PAIRS = 6
"""Most pairs of changes to try."""


class Gathering(ABC):
    """Makes the replays of one node at a time and keeps what they showed in `facts`."""

    case: Case
    runner: TrialRunner
    wishes: Wishes
    facts: Facts
    open_studies: Callable[[str], DoseStudies]
    starts: tuple[int, ...] = ()
    """Checkpoints that a replay can start from, oldest first."""

    @property
    def from_scratch(self) -> bool:
        """Whether replays can start at step 0."""
        return 0 in self.starts

    @abstractmethod
    def spent(self) -> bool:
        """Return whether no further trial may start."""

    def gather(self, node: str, plan: Plan) -> Plan:
        """Make a node's replays; return where replays start from now on."""
        made: Plan | None = getattr(self, f"_gather_{node}")(plan)
        return plan if made is None else made

    def _gather_control(self, plan: Plan) -> None:
        if self.facts.divergence.detector == NOTHING:
            starts = dict.fromkeys([*([0] if self.from_scratch else []), plan.good_step])
            specs = [plan.checked(step) for step in starts]
            self.facts = replace(self.facts, controls=self.runner.run(specs))
            return
        (control,) = self.runner.run([plan.control(plan.good_step, half=self.wishes.layers)])
        if reproduction.differs(control, plan.divergence):
            # Was it the run that is not reproducible, or the watching that changed it? Compiled
            # code is another program when every operation of it is watched.
            (bare,) = self.runner.run([plan.control(plan.good_step, watched=False)])
            self.facts = replace(self.facts, watched=control)
            control = self._first_tensor(plan, bare)
        self.facts = replace(self.facts, controls=(*self.facts.controls, control))

    def _first_tensor(self, plan: Plan, control: TrialRecord) -> TrialRecord:
        """Return a control that differs from the run, with the first tensor that two replays differ
        in; where they are equal, the run itself was disturbed once.
        """
        if not reproduction.differs(control, plan.divergence) or self.spent():
            return control
        assert control.mismatch is not None
        last = min(plan.steps, control.mismatch + 3)
        # Of different lengths, because two equal replays would be made only once.
        specs = [
            replace(
                control.spec,
                until_step=until,
                instruments=("tensor_digests",),
                reason="which tensor is the first that two replays differ in?",
            )
            for until in (last - 1, last)
        ]
        first, second = (r.findings.get("tensor_digests") for r in self.runner.run(specs))
        if not first or not second:
            return control
        found = first_difference(first, second)
        told = (
            f"two replays part at {found}"
            if found
            else "two replays are equal: the run itself was disturbed once"
        )
        return replace(control, mismatch_tensor=told)

    def _gather_placebo(self, plan: Plan) -> None:
        self._placebos(plan, from_step=plan.good_step)

    def _placebos(self, plan: Plan, *, from_step: int) -> None:
        if all(record.spec.from_step != from_step for record in self.facts.placebos):
            ran = self.runner.run(plan.placebos(from_step))
            self.facts = replace(self.facts, placebos=(*self.facts.placebos, *ran))

    def _test(
        self,
        plan: Plan,
        name: str,
        change: Change,
        *,
        from_step: int | None = None,
        instruments: tuple[str, ...] = (),
    ) -> None:
        """Replay with one suspected mechanism switched off."""
        spec = plan.changed(
            "test",
            (change,),
            from_step=plan.good_step if from_step is None else from_step,
            instruments=instruments,
            reason=f"does it train through with {change.variable} {change.dose}?",
        )
        (record,) = self.runner.run([spec])
        self.facts = replace(self.facts, tests={**self.facts.tests, name: record})

    def _gather_rules(self, plan: Plan) -> None:
        for item in implementation.suspects(self.facts, silent=False):
            change = implementation.rule_test(item)
            if change is None or self.spent():
                continue
            name = f"rule {item['rule']}"
            self._test(plan, name, change)
            if self.facts.tests[name].outcome == "cured":
                return

    def _gather_operation(self, plan: Plan) -> None:
        found = self.facts.non_finite
        assert found is not None
        change = implementation.operation_test(found, self.facts)
        if change is not None:
            # What one operation no longer makes, the next one in the same formula may.
            for _ in range(SAFE_AT_ONCE):
                self._test(plan, "operation", change, instruments=("locate",))
                more = implementation.next_operation(
                    self.facts.tests["operation"], change, self.facts
                )
                if more is None or self.spent():
                    return
                change = more
            return
        dose = ",".join(str(i) for i in implementation.few_samples(found, self.facts))
        self._test(plan, "samples", Change(variable="replace_samples", dose=dose))

    def _gather_precision(self, plan: Plan) -> None:
        self.climb(plan, "precision")

    def _gather_data(self, plan: Plan) -> None:
        size = self.case.dataset_size
        if self.case.setup.streamed:  # its batches are numbered as they come
            size = 1 + max((i for r in self.case.records for i in r.sample_ids), default=-1)
        if not size:
            return
        found, trials = search_samples(
            plan,
            self.runner,
            self.case.records,
            dataset_size=size,
            repeats=self.case.setup.accumulate,
            heavy_tailed=step_size.bursting(self.facts),
            sharp=step_size.struck(self.facts),
            spent=self.spent,
        )
        innocent = tuple(record for record in trials if record.spec.role == "placebo")
        self.facts = replace(
            self.facts,
            data=found,
            data_trials=trials,
            placebos=(*self.facts.placebos, *innocent),
        )

    def _gather_schedule(self, plan: Plan) -> None:
        self._test(plan, "schedule", Change(variable="hold_rate", dose="on"))

    def _gather_optimizer_state(self, plan: Plan) -> None:
        self._test(plan, "optimizer_state", Change(variable="optimizer_state", dose="kept"))

    def _gather_initialisation(self, plan: Plan) -> None:
        for change in INITIAL:
            if not self.from_scratch or self.spent():
                return
            self._test(plan, "initialisation", change, from_step=0)
            if self.facts.tests["initialisation"].outcome == "cured":
                return

    def _gather_weight_decay(self, plan: Plan) -> None:
        start = 0 if self.from_scratch else plan.good_step
        change = Change(variable="weight_decay", dose=0.0)
        self._test(plan, "weight_decay", change, from_step=start)

    def _gather_batch_size(self, plan: Plan) -> None:
        self.climb(plan, "batch_size")
        if self.facts.ladder("batch_size").cured:
            self._more_orders(plan)

    def _gather_clip_norm(self, plan: Plan) -> None:
        if step_size.early(self.facts):
            self.climb(plan, "warmup")
        seen = (
            step_size.bursting,
            step_size.ramp_bursts,
            step_size.long_tail,
            step_size.at_once,
        )
        if any(saw(self.facts) for saw in seen):
            self.climb(plan, "clip_norm")

    def _gather_warmup(self, plan: Plan) -> None:
        self.climb(plan, "warmup")

    def _gather_learning_rate(self, plan: Plan) -> Plan | None:
        self.climb(plan, "learning_rate")
        ladder = self.facts.ladder("learning_rate")
        if ladder.cured:
            self._more_orders(plan)
        if ladder.cured or self.spent() or "learning_rate" not in self.facts.variables:
            return None
        return self._walk_back(plan)

    def _more_orders(self, plan: Plan) -> None:
        """Try further orders of the data: anything cures a run that is at the edge."""
        made = {r.spec.dose for r in self.facts.placebos if r.spec.from_step == plan.good_step}
        if self.spent() or plan.own_order or MORE_ORDERS[0] in made:
            return
        orders = [
            plan.changed(
                "placebo",
                (Change(variable="shuffle", dose=salt),),
                from_step=plan.good_step,
                reason="is the run at the edge: does yet another order of the data cure too?",
            )
            for salt in (MANY_ORDERS if step_size.few_samples(self.facts) else MORE_ORDERS)
        ]
        ran = self.runner.run(orders)
        self.facts = replace(self.facts, placebos=(*self.facts.placebos, *ran))

    def climb(self, plan: Plan, *variables: str) -> None:
        """Search the doses of the variables that have not been searched from here yet."""
        wanted = [v for v in variables if v in self.facts.variables and v not in self.facts.ladders]
        if "warmup" in wanted and plan.good_step > 0 and self.from_scratch:
            self._from_scratch_too(plan)
        ladders = DoseLadders(
            records=self.case.records,
            divergence=self.facts.divergence,
            setup=self.case.setup,
            dataset_size=self.case.dataset_size,
            runner=self.runner,
            open_studies=self.open_studies,
            spent=self.spent,
            from_scratch=self.from_scratch,
        )
        found = ladders.climb(plan, wanted, from_step=plan.good_step)
        self.facts = replace(self.facts, ladders={**self.facts.ladders, **found})

    def _from_scratch_too(self, plan: Plan) -> None:
        """Make control and placebos from step 0, where every ramp starts.

        Just before the crash a small change comes too late to matter, and from step 0 it may not.
        So a cure from scratch proves nothing against placebos from later on.
        """
        if all(record.spec.from_step != 0 for record in self.facts.controls):
            control = self.runner.run([plan.control(0)])
            self.facts = replace(self.facts, controls=(*self.facts.controls, *control))
        self._placebos(plan, from_step=0)

    def _walk_back(self, plan: Plan) -> Plan | None:
        """Find the newest earlier checkpoint from which a lower rate works: the point of no return.

        The last good checkpoint may be damaged already. From where the fix works, everything that
        was asked of the later one is asked again.
        """
        earlier = [step for step in self.starts if step < plan.good_step]
        answers: dict[int, bool | None] = {}
        while (step := time_search.next_question(answers, checkpoints=earlier)) is not None:
            if self.spent():
                return None
            (record,) = self.runner.run(
                [
                    plan.changed(
                        "test",
                        (WALK_BACK,),
                        from_step=step,
                        reason=f"does a tenth of the rate still work from step {step}?",
                    )
                ]
            )
            unjudged = record.outcome == "inconclusive"
            answers[step] = None if unjudged else record.outcome == "cured"
        found = time_search.decide(answers, checkpoints=earlier)
        if found is None or found.works_from is None:
            return None
        step = found.works_from
        self.runner.progress.note(
            f"nothing cures from step {plan.good_step}, and a lower rate from step {step}: the "
            "state was damaged in between, so everything is asked again from there"
        )
        back = replace(plan, good_step=step)
        self.facts = replace(
            self.facts,
            good_step=step,
            point_of_no_return=step,
            ladders={v: lad for v, lad in self.facts.ladders.items() if v == "warmup"},
            data=None,
            data_trials=(),
            tests={},
            gathered=self.facts.gathered & {"control", "warmup"},
        )
        self._gather_control(back)
        self._placebos(back, from_step=step)
        self.climb(back, "learning_rate")
        return back

    def _gather_joint(self, plan: Plan) -> None:
        """Try pairs of the changes that have something to say for them."""
        late = [
            record
            for record in (*self.facts.disproved.values(), *self.facts.tests.values())
            if record.divergence is not None
            and record.divergence.detected > plan.divergence.detected + 1
        ]
        for again in late:
            # What crashed once the first fault was gone says itself what the second one may be.
            partner = self._second_fault(again)
            if partner is None or self.spent():
                continue
            self._test(plan, f"beside {partner.variable}", partner)
            assert again.divergence is not None
            self._pair(plan, (*again.spec.changes, partner), past=again.divergence.detected)
        for pair in list(combinations(self._strongest(), 2))[:PAIRS]:
            if self.spent() or any(record.outcome == "cured" for record in self.facts.pairs):
                return
            self._pair(plan, pair)

    def _pair(self, plan: Plan, pair: tuple[Change, ...], *, past: int = 0) -> None:
        spec = plan.changed(
            "dose",
            pair,
            from_step=plan.good_step,
            reason="does it take " + " and ".join(f"{c.variable} {c.dose}" for c in pair) + "?",
        )
        until = min(plan.steps, max(spec.until_step, past + 1 + SEARCH_LEAST))
        (record,) = self.runner.run([replace(spec, until_step=until, save_at=(until,))])
        self.facts = replace(self.facts, pairs=(*self.facts.pairs, record))

    def _second_fault(self, again: TrialRecord) -> Change | None:
        """Return the change that the records of the second crash suggest."""
        assert again.divergence is not None
        own = self.runner.steps_of(again)
        before = [r for r in self.case.records if r.step < self.facts.divergence.onset - 3]
        records = [*before, *own]
        cause, _ = opinion(records, again.divergence, asdict(self.case.setup))
        match cause:
            case "schedule":
                return Change(variable="hold_rate", dose="on")
            case "optimizer_state":
                return Change(variable="optimizer_state", dose="kept")
            case "data" | "implementation":
                onset = again.divergence.onset
                ids = {i for r in own if onset - 1 <= r.step <= onset for i in r.sample_ids}
                dose = ",".join(str(i) for i in sorted(ids))
                return Change(variable="replace_samples", dose=dose) if ids else None
            case "precision" if self.case.setup.precision != "fp32":
                return Change(variable="precision", dose="fp32")
        return Change(variable="learning_rate", dose=0.1)

    def _strongest(self) -> list[Change]:
        """Return single changes that may each be half of the cure, the most telling first."""
        facts = self.facts
        tests = [r for r in facts.tests.values() if r.spec.from_step == facts.good_step]
        halves = {record.spec.changes for record in facts.disproved.values()}
        found = [c for r in tests if r.spec.changes not in halves for c in r.spec.changes]
        if facts.data is not None and facts.data.samples and "data" not in facts.disproved:
            dose = ",".join(str(i) for i in facts.data.samples)
            found.append(Change(variable="replace_samples", dose=dose))
        for variable in ("precision", "learning_rate", "clip_norm", "batch_size"):
            ladder = facts.ladder(variable)
            tried = [r for r in ladder.trials if r.outcome in {"diverged", "delayed"}]
            tried.sort(key=lambda record: (record.outcome == "delayed", record.last_step))
            if tried:
                found.append(tried[-1].spec.changes[0])
        return list(dict.fromkeys(found))
