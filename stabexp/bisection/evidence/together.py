"""Does it take two changes at once?"""

from __future__ import annotations

from stabexp.bisection.evidence.answer import Answer, changed, keys_of
from stabexp.bisection.facts import Facts
from stabexp.records import Change, Culprit, TrialRecord


def alone(facts: Facts, change: Change, *, from_step: int) -> TrialRecord | None:
    """Return the trial from a step with this change alone, None when it was not made."""
    pool = [t for ladder in facts.ladders.values() for t in ladder.trials]
    pool += [*facts.tests.values(), *facts.data_trials]
    wanted = ((change,), from_step)
    return next((r for r in pool if (r.spec.changes, r.spec.from_step) == wanted), None)


def _again(facts: Facts, single: TrialRecord) -> TrialRecord | None:
    """Return the later replay in which a change that first cured crashed all the same."""
    later = facts.disproved.values()
    return next((again for again in later if again.spec.changes == single.spec.changes), None)


def _fails(facts: Facts, single: TrialRecord) -> bool:
    if single.outcome == "inconclusive":
        return False
    return single.outcome != "cured" or _again(facts, single) is not None


def _shown(facts: Facts, single: TrialRecord) -> str:
    again = _again(facts, single)
    if again is None or again.divergence is None:
        return single.outcome
    return f"crashed again at step {again.divergence.detected}"


def joint(facts: Facts) -> Answer:
    """Does a pair of changes cure of which neither does alone?"""
    for pair in facts.pairs:
        if pair.outcome != "cured":
            continue
        start = pair.spec.from_step
        made = [alone(facts, change, from_step=start) for change in pair.spec.changes]
        singles = [s for s in made if s is not None and _fails(facts, s)]
        if len(singles) < len(made):
            continue  # one of them cures alone, or may
        shown = " and ".join(f"{c.variable} {c.dose}" for c in pair.spec.changes)
        told = [f"{changed(s)} alone: {_shown(facts, s)}" for s in singles]
        detail = f"only together cure {shown}; {'; '.join(told)}"
        return Answer(
            yes=True,
            detail=detail,
            trials=(pair.spec.key, *keys_of(singles)),
            culprit=Culprit(
                kind="joint", place=shown, detail=detail, remedy=f"change both: {shown}"
            ),
            cure=pair.spec.key,
        )
    names = "; ".join(f"{changed(pair)}: {pair.outcome}" for pair in facts.pairs)
    return Answer(
        yes=False,
        detail=names or "no pair of changes was tried",
        trials=keys_of(facts.pairs),
        tried=bool(facts.pairs),
    )
