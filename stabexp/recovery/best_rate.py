"""Of the rates that cure, the one to go on with.

A verdict names the mildest cure, for it is about the cause. At the edge of what holds a run learns
badly, so which rate to go on with is another question, and the bisect's replays answer it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stabexp.records import TrialRecord, Verdict
from stabexp.recovery.remedies import learns_best


def best_rate(verdict: Verdict, trials: Sequence[TrialRecord]) -> tuple[Mapping[str, Any], str]:
    """Return a verdict's fix with the rate that learned best among those that cured.

    Returns:
        The fix, and what to add to the verdict's sentence; "" where the fix stays as it is.
    """
    named = next((c for c in verdict.cures if c.variable == "learning_rate"), None)
    if verdict.cause != "learning_rate" or named is None or len(verdict.fix) != 1:
        return verdict.fix, ""
    tried = {
        float(t.spec.dose): t
        for t in trials
        if t.spec.variable == "learning_rate"
        and len(t.spec.changes) == 1
        and t.spec.role == "dose"
        and t.outcome == "cured"
        and t.spec.from_step == verdict.good_step
        and t.spec.dose is not None
    }
    until = max((t.spec.until_step for t in tried.values()), default=0)
    ends = [
        (t.end_loss, dose)
        for dose, t in sorted(tried.items(), reverse=True)
        if t.spec.until_step == until and dose <= float(named.dose)
    ]
    dose = learns_best(ends)
    ((key, value),) = verdict.fix.items()
    if dose is None or dose == float(named.dose) or not isinstance(value, (int, float)):
        return verdict.fix, ""
    fix = {key: float(f"{value * dose / float(named.dose):.4g}")}
    return fix, f" Of the rates that cure, ×{dose:g} had learned best by step {until}."
