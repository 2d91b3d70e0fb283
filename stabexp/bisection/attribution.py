"""From what the trials did to a verdict: cause, confidence, what is ruled out, and the fix.

Two opinions that look at different things, the step records before any replay and the replays
themselves, are the best measure of confidence: where they agreed, the replays were right in 134 of
139 incidents, and where they disagreed in 27 of 34. A proof that is missing lowers what is claimed.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabexp.bisection.decision_tree import walk
from stabexp.bisection.evidence import NOT_TRIED, amount, outcomes, unmoved
from stabexp.bisection.facts import Facts, LadderFacts, healthy_norms
from stabexp.bisection.ladder import SAFER_PRECISIONS
from stabexp.bisection.search import LadderAnswer
from stabexp.interventions import ramp
from stabexp.records import (
    VARIABLES,
    Cause,
    Cure,
    Evidence,
    Outcome,
    RuledOut,
    StepRecord,
    TrialRecord,
    TrialSpec,
    Verdict,
)

AGREE = (134 + 1) / (139 + 2)
"""Laplace estimate of a right verdict when telemetry and replays agree."""
DISAGREE = (27 + 1) / (34 + 2)
"""The same when only the replays speak for it: telemetry named another cause, or none."""
UNPROVED = 0.6
"""Cap when part of the evidence is missing (a rival not tried, no crash brought back, no fix run)
or speaks against the cause: a placebo cures, or the crash does not move with the rate."""
LEARNING_SHARE = 0.25
"""A cure makes at least this share of the best surviving trial's progress from the same step."""


def ladder_facts(
    variable: str,
    answer: LadderAnswer | None,
    trials: Sequence[TrialRecord],
    *,
    records: Sequence[StepRecord],
    onset: int,
    warmup_steps: int,
    steps: int,
    slow: Collection[str] = (),
    unanswered: str = "the budget ran out",
) -> LadderFacts:
    """Return what a ladder showed, with the share of the updates its cure takes away.

    Args:
        variable: The ladder's variable.
        answer: What the search settled, None when the budget ran out first.
        trials: All its trials.
        records: The diverged run's step records.
        onset: First step of it that looked wrong.
        warmup_steps: Length of its own ramp.
        steps: Its planned steps.
        slow: Keys of trials, of any variable, that survive but hardly learn.
        unanswered: Why there is no answer, when there is none.
    """
    hardly = tuple(trial.spec.key for trial in trials if trial.spec.key in slow)
    found = LadderFacts(variable=variable, trials=tuple(trials), slow=hardly)
    if answer is None:
        return replace(found, undecided=True, skipped=unanswered)
    if answer.dose is None:
        return found
    curing = next(t for t in trials if t.spec.dose == answer.dose)
    cure = Cure(
        variable=variable,
        dose=answer.dose,
        original=answer.ladder.original,
        stronger_dose=answer.stronger_dose,
        milder_dose=answer.milder_dose,
        robust=answer.decision.robust,
        trial=curing.spec.key,
        removed=_removed(
            variable,
            answer.dose,
            norms=healthy_norms(records, onset),
            warmup_steps=warmup_steps,
            steps=steps,
        ),
    )
    return replace(found, cure=cure)


def _removed(
    variable: str, dose: Any, *, norms: Sequence[float], warmup_steps: int, steps: int
) -> float:
    if variable == "learning_rate":
        return max(0.0, 1.0 - float(dose))
    if variable == "clip_norm" and norms:
        return 1.0 - sum(min(1.0, float(dose) / n) for n in norms if n > 0) / len(norms)
    if variable == "warmup" and steps:
        lost = sum(ramp(s, warmup_steps) - ramp(s, int(dose)) for s in range(steps))
        return max(0.0, lost / steps)
    return 0.0


def slow_learners(trials: Sequence[TrialRecord], *, noise: float) -> dict[str, Outcome]:
    """Return the trials that hardly learn next to the best one, and what they count as.

    Weights that hardly move survive too. When a stronger dose of the same variable learns better,
    the trial's dose was too mild ("delayed"), otherwise too strong ("stalled"). Warmup trials are
    left out: they start elsewhere and run longer. A lag that is within the noise of the losses is
    none: near a plateau, the best trial is the luckiest one.

    Args:
        trials: All trials of one starting step.
        noise: By how much the loss scatters from batch to batch.
    """
    cured = [t for t in trials if t.outcome == "cured" and t.spec.variable != "warmup"]
    made = {trial.spec.key: trial.start_loss - trial.end_loss for trial in cured}
    best: dict[int, float] = {}
    for trial in cured:
        start = trial.spec.from_step
        best[start] = max(best.get(start, 0.0), made[trial.spec.key])
    found: dict[str, Outcome] = {}
    for trial in cured:
        most = best[trial.spec.from_step]
        if made[trial.spec.key] >= min(LEARNING_SHARE * most, most - noise):
            continue
        better = any(
            other.spec.variable == trial.spec.variable
            and made[other.spec.key] > made[trial.spec.key]
            and _stronger(other.spec, trial.spec)
            for other in cured
        )
        found[trial.spec.key] = "delayed" if better else "stalled"
    return found


def _stronger(one: TrialSpec, other: TrialSpec) -> bool:
    """Return whether a dose changes more than another of the same variable."""
    a, b = one.dose, other.dose
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        order = SAFER_PRECISIONS["fp16_unscaled"]
        return a in order and b in order and order.index(str(a)) > order.index(str(b))
    return a > b if one.variable == "batch_size" else a < b


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the facts say so far: the cause, and how the tree got there."""

    cause: Cause
    path: tuple[Evidence, ...]

    @property
    def cure(self) -> bool:
        """Whether the cause is a variable that can be set right."""
        return self.cause in VARIABLES


def judge(facts: Facts) -> Opinion:
    """Walk the tree, then ask whether its cause stands: does the crash return, the fix hold?"""
    cause, path = walk(facts)
    if cause not in VARIABLES:
        return Opinion(cause=cause, path=path)
    path = tuple(replace(step, decisive=False) for step in path)
    reversal, proof = _reversal(facts, cause), _proof(facts)
    if reversal.answer == "no":
        cause, path = "inconclusive", (*path, proof, reversal)
    else:
        cause = "inconclusive" if proof.answer == "no" else cause
        path = (*path, reversal, proof)
    return Opinion(cause=cause, path=(*path[:-1], replace(path[-1], decisive=True)))


def _reversal(facts: Facts, cause: str) -> Evidence:
    question = "Does the crash come back when the original value is put back?"
    trial = facts.reversal
    if cause == "warmup":
        starts = tuple(r.spec.key for r in facts.controls if r.spec.from_step == 0)
        answer = "yes" if starts else NOT_TRIED
        detail = "a ramp that is over cannot be taken back; from scratch without it the run "
        detail += "crashed" if starts else "was not replayed"
    elif trial is None:
        starts = ()
        answer = NOT_TRIED
        why = "the budget ran out" if facts.spent else "the run ends too soon after the cure"
        detail = f"could not be tried: {why}"
    else:
        starts = (trial.spec.key,)
        answer, detail = _put_back(trial)
    return Evidence(node="reversal", question=question, answer=answer, detail=detail, trials=starts)


def _put_back(trial: TrialRecord) -> tuple[str, str]:
    """Return what a reversal shows: the answer and its figures."""
    where = f"step {trial.spec.from_step}"
    if trial.divergence is not None:
        after = trial.divergence.detected - trial.spec.from_step + 1
        return "yes", f"{after} steps after it was put back at {where}"
    if trial.outcome == "inconclusive":
        return NOT_TRIED, f"could not be tried: {trial.note}"
    if trial.outcome == "delayed":
        # No crash, but the harm is back: neither proof nor disproof.
        return "not clearly", f"put back at {where}: {trial.note}"
    return "no", (
        f"with the original value from {where} on the run stayed stable for {trial.steps} steps, "
        "so something that happened once set it off: a batch, a state"
    )


def _proof(facts: Facts) -> Evidence:
    question = "Does the run with the fix, started from scratch, pass the horizon and learn?"
    trial = facts.proof
    if trial is None:
        why = "the budget ran out" if facts.spent else "no fix was run"
        return Evidence(node="proof", question=question, answer=NOT_TRIED, detail=why)
    answer = {"cured": "yes", "inconclusive": NOT_TRIED}.get(trial.outcome, "no")
    return Evidence(
        node="proof",
        question=question,
        answer=answer,
        detail=trial.note or trial.outcome,
        trials=(trial.spec.key,),
    )


def confidence(facts: Facts, opinion: Opinion, telemetry: str) -> float:
    """Return how often verdicts with this evidence are right, 0 to 1.

    Step records alone never say "not reproduced" or "marginal", so for these only replays speak.
    """
    if opinion.cause == "inconclusive":
        return 0.0
    value = AGREE if telemetry == opinion.cause else DISAGREE
    answers = {step.node: step.answer for step in opinion.path}
    missing = NOT_TRIED in answers.values()
    if opinion.cause in VARIABLES:
        missing |= answers["reversal"] != "yes" or answers["proof"] != "yes"
    against = opinion.cause == "learning_rate" and unmoved(facts)
    if missing or against or opinion.cause == "marginal":
        value = min(value, UNPROVED)
    return round(value, 3)


def ruled_out(facts: Facts, cause: Cause) -> tuple[RuledOut, ...]:
    """Return every variable that is not the cause, and how that is known."""
    found = []
    details = {step.node: step.detail for step in walk(facts)[1]}
    for variable, ladder in facts.ladders.items():
        if variable == cause:
            continue
        keys = tuple(record.spec.key for record in ladder.trials)
        if ladder.cured and ladder.cure is not None:
            if cause in VARIABLES:
                why = details.get(variable) or (
                    f"{amount(variable, ladder.cure.dose)} makes the symptom go away, but setting "
                    f"{cause} right cures with {variable} as it was"
                )
                found.append(RuledOut(variable=variable, why=why, masker=True, trials=keys))
            continue
        why = f"no robust cure: {outcomes(ladder)}"
        if ladder.undecided:
            shown = f" after {outcomes(ladder)}" if ladder.trials else ""
            why = f"not ruled out: {ladder.skipped}{shown}"
        elif ladder.untold:
            skipped = ladder.skipped
            why = f"not tried: {skipped}" if skipped else f"not known: {outcomes(ladder)}"
        found.append(RuledOut(variable=variable, why=why, trials=keys))
    if cause in VARIABLES:
        left_out = [v for v in VARIABLES if v != cause and v not in facts.ladders]
        found += [RuledOut(variable=v, why="not tried: left out by request") for v in left_out]
    return tuple(found)


def summary(facts: Facts, opinion: Opinion) -> str:  # noqa: PLR0911
    """Return the verdict in one sentence."""
    cause, setup = opinion.cause, facts.setup
    last = next((step for step in reversed(opinion.path) if step.decisive), opinion.path[-1])
    if cause == "not_reproduced":
        return f"The crash is not reproducible, so no setting can be blamed: {last.detail}."
    if cause == "marginal":
        return (
            f"The run is at the edge of stability and no single cause can be named: {last.detail}."
        )
    if cause == "inconclusive":
        return f"No cause could be proved: {last.detail}."
    cure = facts.ladder(cause).cure
    assert cure is not None
    dose = cure.dose if facts.fix_dose is None else facts.fix_dose
    answers = {step.node: step.answer for step in opinion.path}
    again = " and putting it back brings the crash back" if answers["reversal"] == "yes" else ""
    if cause == "learning_rate":
        rate = "The learning rate" if setup.lr is None else f"The learning rate {setup.lr:g}"
        doubt = " The crash came at the same step at lower rates, though." if unmoved(facts) else ""
        return f"{rate} is too high: ×{dose} of it trains through{again}.{doubt}"
    if cause == "warmup":
        return (
            f"The full learning rate comes too early: the same rate trains through after a linear "
            f"warmup of {dose} steps instead of {setup.warmup_steps}."
        )
    if cause == "clip_norm":
        loose = (
            "are not clipped"
            if setup.clip_norm is None
            else f"pass the clip at {setup.clip_norm:g}"
        )
        return (
            f"Rare bursts of the gradient {loose}: clipping at norm {dose} trains through at the "
            f"full learning rate{again}."
            + ("" if facts.data else " Whether single samples cause them was not examined.")
        )
    if cause == "precision":
        return (
            f"The number format {setup.precision} loses numbers this training needs: {dose} "
            f"trains through with nothing else changed{again}."
        )
    return (
        f"{setup.batch_size} samples per update are too few: ×{dose} trains through at the same "
        f"learning rate{again}."
    )


def verdict(
    facts: Facts,
    *,
    run_id: str,
    bisect_id: str,
    telemetry: tuple[str, str],
    fix: Mapping[str, Any],
    all_trials: Sequence[TrialRecord],
    seconds: float,
    source: str,
) -> Verdict:
    """Return the verdict on everything that was found.

    Args:
        facts: What the run and its trials showed.
        run_id: The diverged run.
        bisect_id: The bisect.
        telemetry: The second opinion: cause and reason.
        fix: Experiment keys that were run as the proof.
        all_trials: Every trial, for the cost; one that was asked for twice counts once.
        seconds: Wall time spent.
        source: How to name the experiment in a command.
    """
    opinion = judge(facts)
    proved = facts.proof is not None and facts.proof.outcome == "cured"
    applied = dict(fix) if opinion.cure else {}
    options = [part for key, value in applied.items() for part in ("-o", f"{key}={value}")]
    again = ["stabexp", "run", source, *options]
    command = shlex.join(again if applied else ["stabexp", "log", run_id])
    different = {record.spec.key: record for record in all_trials}
    cause, reason = telemetry
    return Verdict(
        run_id=run_id,
        bisect_id=bisect_id,
        cause=opinion.cause,
        confidence=confidence(facts, opinion, cause),
        summary=summary(facts, opinion),
        path=opinion.path,
        cures=tuple(lad.cure for lad in facts.ladders.values() if lad.cure is not None),
        ruled_out=ruled_out(facts, opinion.cause),
        fix=applied,
        fix_proved=proved and bool(applied),
        divergence=facts.divergence,
        good_step=facts.good_step,
        telemetry=f"{cause}: {reason}",
        trials=len(different),
        replayed_steps=sum(max(record.steps, 0) for record in different.values()),
        crash_steps=facts.divergence.detected + 1,
        seconds=seconds,
        next_command=command,
    )
