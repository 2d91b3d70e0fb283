"""An answer to a question of the decision tree, and the words answers are given in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.bisection.facts import LadderFacts
from stabexp.records import Cause, Culprit, TrialRecord

NOT_TRIED = "not tried"
"""Answer to a question that no replay was made for: it goes on as a no, but proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Yes or no, the figures, and the trials that say so."""

    yes: bool | None
    """None when the question stays open, so that nothing after it may be concluded."""
    detail: str
    trials: tuple[str, ...] = ()
    tried: bool = True
    """False when nothing was tried, so that "no" only means that nothing speaks for it."""
    cause: Cause | None = None
    """The cause, where the question can end at more than one."""
    culprit: Culprit | None = None
    """What exactly is at fault."""
    cure: str = ""
    """Key of the trial that trained through with the fault alone taken away."""

    @property
    def text(self) -> str:
        """The answer as the verdict shows it."""
        if self.yes is None:
            return "not known"
        if not self.tried:
            return NOT_TRIED
        return "yes" if self.yes else "no"


def uncured(ladder: LadderFacts, *, possible: bool) -> Answer:
    """Answer for a variable without a robust cure.

    `possible` says whether the run was such that this variable can be the cause at all; where it
    can not, it does not matter that its doses were not tried to an end.
    """
    keys = keys_of(ladder.trials)
    if ladder.undecided:
        shown = f" after {outcomes(ladder)}" if ladder.trials else ""
        detail = f"{ladder.skipped}{shown}"
        return Answer(yes=None if possible else False, detail=detail, trials=keys)
    if ladder.untold:
        why = outcomes(ladder) if ladder.trials else ladder.skipped
        return Answer(yes=False, detail=why, trials=keys, tried=not possible)
    return Answer(yes=False, detail=f"no dose cures robustly: {outcomes(ladder)}", trials=keys)


def outcomes(ladder: LadderFacts) -> str:
    """Return what each dose did: "×0.5 diverged, ×0.1 hardly learns"."""
    return ", ".join(
        f"{amount(ladder.variable, record.spec.dose)} "
        + ("hardly learns" if record.spec.key in ladder.slow else record.outcome)
        for record in ladder.trials
    )


def amount(variable: str, dose: float | int | str | None) -> str:
    """Return a dose as people read it: "×0.5", "0.25", "fp32"."""
    return f"×{dose}" if variable in {"learning_rate", "batch_size"} else str(dose)


def changed(record: TrialRecord) -> str:
    changes = record.spec.changes
    return ", ".join(f"{c.variable} {amount(c.variable, c.dose)}" for c in changes)


def keys_of(records: Sequence[TrialRecord]) -> tuple[str, ...]:
    return tuple(record.spec.key for record in records)
