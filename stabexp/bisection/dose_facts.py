"""What the doses of one variable showed: a cure, what it takes away, who hardly learns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from stabexp.bisection.facts import LadderFacts, healthy_norms
from stabexp.bisection.ladder import SAFER_PRECISIONS
from stabexp.bisection.search import LadderAnswer
from stabexp.interventions import ramp
from stabexp.records import Cure, Outcome, StepRecord, TrialRecord, TrialSpec

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


def by_strength(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials of one variable from the mildest dose to the strongest."""
    return sorted(trials, key=lambda t: sum(_stronger(t.spec, other.spec) for other in trials))
