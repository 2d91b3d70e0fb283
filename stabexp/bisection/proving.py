"""Whether a cause stands: the crash comes back, the fix goes on, holds in other orders, and where.

A cure is a claim about the future, so the run with the fix goes on past the horizon; and about the
past, so putting the bad value back must bring the crash back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stabexp.bisection import attribution, layer_search
from stabexp.bisection.decision_tree import Node, Walk, walk
from stabexp.bisection.dose_facts import by_strength
from stabexp.bisection.evidence import step_size
from stabexp.bisection.facts import LadderFacts
from stabexp.bisection.gathering import Gathering
from stabexp.bisection.plan import Plan, patch_for
from stabexp.records import BLAMELESS, VARIABLES, Cause, Change, Outcome, TrialRecord, TrialSpec

MENDED = frozenset({"hold_rate", "safe_operation", "optimizer_state", "eager", "exact_modules"})
"""Changes that show where the fault is; for good it is mended in the code or the schedule."""

SETTINGS = frozenset({*VARIABLES, "init_scale", "usual_init", "weight_decay"})
"""Changes whose fix is run from scratch, where that costs little: they act from step 0 on."""


class Proving(Gathering):
    """Tries to bring a cause down before it is named."""

    tree: dict[str, Node]
    fix: Mapping[str, Any] = {}
    """Experiment keys that set the cause right."""

    def prove(self, plan: Plan) -> bool:
        """Return whether the cause stands; False when there is more to it than was found."""
        walked = walk(self.facts, self.tree)
        trial = attribution.cure_of(self.facts, walked)
        self.fix = self._patch(trial) if trial is not None else {}
        if self.spent():
            return True
        if trial is not None:
            self._stands(plan, walked, trial)
            if (again := self._crashed_again(walked)) is not None:
                self.facts = replace(
                    self.facts,
                    proof=None,
                    disproved={**self.facts.disproved, walked.path[-1].node: again},
                )
                return False
            self._repeat(plan, trial)
        if walked.cause in {"precision", "learning_rate"} and self.wishes.layers:
            self._layers(plan, walked.cause)
        if self.wishes.thorough and walked.cause not in BLAMELESS:
            rest = [v for v in self.facts.variables if v not in self.facts.ladders]
            self.runner.progress.phase("what else makes the crash go away", "the verdict")
            known = self.facts
            self.climb(plan, *rest)
            beside = {v: lad for v, lad in self.facts.ladders.items() if v not in known.ladders}
            self.facts = replace(known, beside=beside)
        return True

    def _crashed_again(self, walked: Walk) -> TrialRecord | None:
        """Return the proof when it crashed although the fault, which is no setting, was gone."""
        proof = self.facts.proof
        node = walked.path[-1].node
        if proof is None or proof.divergence is None or node in {*VARIABLES, "joint"}:
            return None
        return proof

    @abstractmethod
    def tell(self, plan: Plan, walked: Walk, planned: Sequence[TrialSpec] = ()) -> None:
        """Tell what is known by now, and what the rest is expected to cost."""

    def _stands(self, plan: Plan, walked: Walk, trial: TrialRecord) -> None:
        """Put the bad value back, and go on with the fix past the horizon."""
        cause = walked.cause
        self.runner.progress.phase(f"proof that it is {cause}", "the verdict")
        ladder = self.facts.ladders.get(cause)
        reversal = plan.reversal(trial.spec) if ladder is not None else None
        proof = self._proof_of(plan, trial, recurring=cause == "data")
        specs = [spec for spec in (proof, reversal) if spec is not None]
        self.tell(plan, walked, specs)
        ran = dict(zip((s.key for s in specs), self.runner.run(specs), strict=True))
        self.facts = replace(
            self.facts,
            proof=ran[proof.key] if proof else None,
            reversal=ran[reversal.key] if reversal else None,
        )
        if ladder is not None and ladder.cure is not None:
            self._stronger(plan, ladder, trial)

    def _stronger(self, plan: Plan, ladder: LadderFacts, trial: TrialRecord) -> None:
        """Prove a stronger dose, where the mildest one turns out not to hold."""
        order = {record.spec.key: place for place, record in enumerate(by_strength(ladder.trials))}
        cured = [record for record in ladder.trials if record.outcome == "cured"]
        stronger = [r for r in cured if order[r.spec.key] > order[trial.spec.key]]
        for candidate in sorted(stronger, key=lambda record: order[record.spec.key]):
            shown = self.facts.proof
            held = shown is None or shown.outcome in {"cured", "inconclusive"}
            if held or self.spent():
                return
            self.runner.progress.note("this dose does not hold; trying the next stronger one")
            self.fix = self._patch(candidate)
            if (again := self._proof_of(plan, candidate)) is None:
                return
            (record,) = self.runner.run([again])
            self.facts = replace(self.facts, proof=record, fix_dose=candidate.spec.dose)

    def _proof_of(
        self, plan: Plan, trial: TrialRecord, *, recurring: bool = False
    ) -> TrialSpec | None:
        """Return the proof to run: from scratch as a user would, where the replays began there.

        At a late crash a run from scratch costs more than all replays together; then the curing
        replay goes on past its horizon instead.
        """
        setting = trial.spec.variable in SETTINGS
        if self.fix and setting and trial.spec.from_step == 0 and not recurring:
            return plan.from_scratch(self.fix, cure=trial.spec)
        # Where nothing clips, samples that stand out may be the first of many.
        return plan.onward(trial.spec, recurring=recurring and step_size.clips_nothing(self.facts))

    def _patch(self, trial: TrialRecord) -> dict[str, Any]:
        """Return the experiment keys that make a trial's changes for good; empty if none can."""
        patch: dict[str, Any] = {}
        for change in trial.spec.changes:
            if change.variable in MENDED:
                return {}  # the code has to be mended, or the schedule
            patch |= patch_for(
                change.variable,
                change.dose,
                setup=self.case.setup,
                own_loop=self.case.own_loop,
            )
        return patch

    def _repeat(self, plan: Plan, trial: TrialRecord) -> None:
        """Replay the cure in further orders of the data, where the crash comes back without it."""
        made: list[TrialRecord] = []
        for salt in range(2, 2 + self.wishes.seeds):
            if self.spent() or plan.own_order:
                break
            shuffle = Change(variable="shuffle", dose=salt)
            pair = [
                plan.changed(
                    "placebo",
                    (shuffle,),
                    from_step=trial.spec.from_step,
                    reason="does it crash in another order of the data?",
                ),
                replace(
                    trial.spec,
                    role="test",
                    changes=(*trial.spec.changes, shuffle),
                    save_at=(),
                    reason="does the cure hold in another order of the data?",
                ),
            ]
            without, with_cure = self.runner.run(pair)
            if without.divergence is not None:  # else that order shows nothing
                made.append(with_cure)
        self.facts = replace(self.facts, repeats=tuple(made))

    def _layers(self, plan: Plan, cause: Cause) -> None:
        """Find the fewest modules in which the cure has to act, and prove that they are enough.

        For half precision those that must compute in float32, for a rate that is too high those
        that must learn more slowly.
        """
        found = [r.findings["half_modules"] for r in self.facts.controls if _has_modules(r)]
        cure = self.facts.ladder(cause).cure
        if not found or (cure is None and cause == "learning_rate"):
            return
        self.runner.progress.phase("in which modules the cure has to act", "the verdict")
        outcomes: dict[layer_search.Modules, Outcome] = {}
        names, hint = list(found[0]["names"]), list(found[0]["near"])
        while not self.spent() and (
            asked := layer_search.next_questions(outcomes, names=names, hint=hint)
        ):
            modules = sorted(asked[0])
            change = Change(variable="exact_modules", dose=",".join(modules))
            if cause == "learning_rate" and cure is not None:
                rates = ",".join(f"{name}={cure.dose}" for name in modules)
                change = Change(variable="layer_rate", dose=rates)
            spec = plan.changed(
                "test",
                (change,),
                from_step=plan.good_step,
                reason=f"does it train through with {change.variable} {change.dose}?",
            )
            (record,) = self.runner.run([spec])
            outcomes[asked[0]] = record.outcome
        decided = layer_search.decide(outcomes, names=names, hint=hint)
        if decided is not None and decided.modules and decided.outcome == "cured":
            self.facts = replace(self.facts, modules=decided.modules)


def _has_modules(record: TrialRecord) -> bool:
    return "half_modules" in record.findings
