"""From what the trials did to a verdict: cause, confidence, what is ruled out, and the fix.

Two opinions that look at different things, the step records before any replay and the replays
themselves, are the best measure of confidence: where they agreed, the replays were right in 134 of
139 incidents, and where they disagreed in 27 of 34. A proof that is missing lowers what is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabexp.bisection.decision_tree import walk
from stabexp.bisection.facts import Facts, LadderFacts, healthy_norms
from stabexp.bisection.ladder import SAFER_PRECISIONS
from stabexp.bisection.search import LadderAnswer
from stabexp.interventions import ramp
from stabexp.records import (
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
"""The same when they disagree, or telemetry had no opinion."""
UNPROVED = 0.6
"""Cap when the crash could not be brought back or the fix was not run."""
LEARNING_SHARE = 0.25
"""A cure makes at least this share of the best surviving trial's progress from the same step."""

VARIABLE_CAUSES = ("learning_rate", "warmup", "clip_norm", "precision", "batch_size")


def ladder_facts(
    answer: LadderAnswer,
    trials: Sequence[TrialRecord],
    *,
    records: Sequence[StepRecord],
    onset: int,
    warmup_steps: int,
    steps: int,
    slow: Collection[str] = (),
) -> LadderFacts:
    """Return what a decided ladder showed, with the share of the updates its cure takes away."""
    ladder = answer.ladder
    hardly = tuple(trial.spec.key for trial in trials if trial.spec.key in slow)
    if answer.dose is None:
        return LadderFacts(variable=ladder.variable, trials=tuple(trials), slow=hardly)
    curing = next(t for t in trials if t.spec.dose == answer.dose)
    cure = Cure(
        variable=ladder.variable,
        dose=answer.dose,
        original=ladder.original,
        stronger_dose=answer.stronger_dose,
        milder_dose=answer.milder_dose,
        robust=answer.decision.robust,
        trial=curing.spec.key,
        removed=_removed(
            ladder.variable,
            answer.dose,
            norms=healthy_norms(records, onset),
            warmup_steps=warmup_steps,
            steps=steps,
        ),
    )
    return LadderFacts(variable=ladder.variable, trials=tuple(trials), cure=cure, slow=hardly)


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


def slow_learners(trials: Sequence[TrialRecord]) -> dict[str, Outcome]:
    """Return the trials that hardly learn next to the best one, and what they count as.

    Weights that hardly move survive too. When a stronger dose of the same variable learns better,
    the trial's dose was too mild ("delayed"), otherwise too strong ("stalled"). Warmup trials are
    left out: they start elsewhere and run longer.
    """
    cured = [t for t in trials if t.outcome == "cured" and t.spec.variable != "warmup"]
    made = {trial.spec.key: trial.start_loss - trial.end_loss for trial in cured}
    best: dict[int, float] = {}
    for trial in cured:
        start = trial.spec.from_step
        best[start] = max(best.get(start, 0.0), made[trial.spec.key])
    found: dict[str, Outcome] = {}
    for trial in cured:
        if made[trial.spec.key] >= LEARNING_SHARE * best[trial.spec.from_step]:
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
        return self.cause in VARIABLE_CAUSES


def judge(facts: Facts) -> Opinion:
    """Walk the tree, then ask whether its cause stands: does the crash return, the fix hold?"""
    cause, path = walk(facts)
    if cause not in VARIABLE_CAUSES:
        return Opinion(cause=cause, path=path)
    path = tuple(replace(step, decisive=False) for step in path)
    reversal, fell = _reversal(facts, cause)
    proof, failed = _proof(facts)
    path = (*path, reversal, proof)
    if fell or failed:
        cause = "inconclusive"
    last = replace(path[-1] if not fell else path[-2], decisive=True)
    path = (*path[:-1], last) if not fell else (*path[:-2], last)
    return Opinion(cause=cause, path=path)


def _reversal(facts: Facts, cause: str) -> tuple[Evidence, bool]:
    question = "Does the crash come back when the original value is put back?"
    if cause == "warmup":
        starts = [r for r in facts.controls if r.spec.from_step == 0]
        detail = "a ramp that is over cannot be taken back; from scratch without it the run crashed"
        keys = tuple(record.spec.key for record in starts)
        return (
            Evidence(node="reversal", question=question, answer="yes", detail=detail, trials=keys),
            False,
        )
    trial = facts.reversal
    if trial is None:
        detail = "could not be tried: the run ends too soon after the cure"
        return Evidence(
            node="reversal", question=question, answer="not tried", detail=detail
        ), False
    keys = (trial.spec.key,)
    if trial.divergence is not None:
        after = trial.divergence.detected - trial.spec.from_step + 1
        detail = f"{after} steps after it was put back at step {trial.spec.from_step}"
        return (
            Evidence(node="reversal", question=question, answer="yes", detail=detail, trials=keys),
            False,
        )
    if trial.outcome == "inconclusive":
        detail = f"could not be tried: {trial.note}"
        return Evidence(
            node="reversal", question=question, answer="not tried", detail=detail, trials=keys
        ), False
    detail = (
        f"with the original value from step {trial.spec.from_step} on the run stayed stable for "
        f"{trial.steps} steps, so something that happened once set it off: a batch, a state"
    )
    return (
        Evidence(node="reversal", question=question, answer="no", detail=detail, trials=keys),
        True,
    )


def _proof(facts: Facts) -> tuple[Evidence, bool]:
    question = "Does the run with the fix, started from scratch, pass the horizon and learn?"
    trial = facts.proof
    if trial is None:
        return Evidence(
            node="proof", question=question, answer="not tried", detail="no fix was run"
        ), False
    keys = (trial.spec.key,)
    answer = {"cured": "yes", "inconclusive": "not tried"}.get(trial.outcome, "no")
    return (
        Evidence(node="proof", question=question, answer=answer, detail=trial.note, trials=keys),
        answer == "no",
    )


def confidence(facts: Facts, opinion: Opinion, telemetry: str) -> float:
    """Return how often verdicts with this evidence are right, 0 to 1."""
    if opinion.cause == "inconclusive":
        return 0.0
    if opinion.cause in {"not_reproduced", "marginal"}:
        return AGREE
    value = AGREE if telemetry == opinion.cause else DISAGREE
    answers = {step.node: step.answer for step in opinion.path}
    if answers.get("reversal") != "yes" or answers.get("proof") != "yes":
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
        if ladder.undecided:
            found.append(
                RuledOut(variable=variable, why=f"undecided: {ladder.skipped}", trials=keys)
            )
            continue
        if not ladder.trials:
            found.append(RuledOut(variable=variable, why=f"not tried: {ladder.skipped}"))
            continue
        if ladder.cured and ladder.cure is not None:
            if cause in VARIABLE_CAUSES:
                why = details.get(variable) or (
                    f"{_amount(variable, ladder.cure.dose)} makes the symptom go away, but setting "
                    f"{cause} right cures with {variable} as it was"
                )
                found.append(RuledOut(variable=variable, why=why, masker=True, trials=keys))
            continue
        doses = ", ".join(
            f"{_amount(variable, record.spec.dose)} "
            + ("hardly learns" if record.spec.key in ladder.slow else record.outcome)
            for record in ladder.trials
        )
        found.append(RuledOut(variable=variable, why=f"no robust cure: {doses}", trials=keys))
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
    again = {
        "yes": " and putting it back brings the crash back",
        "no": "",
        "not tried": "",
    }[next(step.answer for step in opinion.path if step.node == "reversal")]
    if cause == "learning_rate":
        rate = "The learning rate" if setup.lr is None else f"The learning rate {setup.lr:g}"
        return f"{rate} is too high: ×{dose} of it trains through{again}."
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
        all_trials: Every trial, for the cost.
        seconds: Wall time spent.
        source: How to name the experiment in a command.
    """
    opinion = judge(facts)
    proved = facts.proof is not None and facts.proof.outcome == "cured"
    applied = dict(fix) if opinion.cure else {}
    options = " ".join(f"-o {key}={value}" for key, value in applied.items())
    command = f"stabexp run {source} {options}" if applied else f"stabexp log {run_id}"
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
        trials=len(all_trials),
        replayed_steps=sum(max(record.steps, 0) for record in all_trials),
        crash_steps=facts.divergence.detected + 1,
        seconds=seconds,
        next_command=command,
    )


def _amount(variable: str, dose: Any) -> str:
    return f"×{dose}" if variable in {"learning_rate", "batch_size"} else str(dose)
