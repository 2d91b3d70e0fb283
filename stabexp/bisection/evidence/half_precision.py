"""Was a number lost in half precision?"""

from __future__ import annotations

from typing import cast

from stabexp.bisection.evidence.answer import Answer, keys_of, uncured
from stabexp.bisection.facts import Facts
from stabexp.records import Cure

HALF_LIMIT = 2e4
"""Half-precision activations above this are close to the end of float16, 65,504."""
SKIPPED = 0.2
"""Share of updates left out by the loss scaler above which scaling is the fault."""
VANISHED = 0.6
"""Share of gradient elements that are exactly zero above which they have underflowed."""


def precision(facts: Facts) -> Answer:
    """Was a number lost in half precision, and does a wider format cure?"""
    ladder = facts.ladder("precision")
    if facts.setup.precision in {"fp32", "fp64"}:
        return Answer(yes=False, detail=f"the run is in {facts.setup.precision}")
    mechanism = lost_numbers(facts)
    if not ladder.cured:
        return uncured(ladder, possible=bool(mechanism))
    cure = cast(Cure, ladder.cure)
    if mechanism:
        return Answer(
            yes=True,
            detail=f"{mechanism}; {cure.dose} cures at the same learning rate",
            trials=(*keys_of(facts.controls), cure.trial),
        )
    return Answer(
        yes=False,
        detail="a wider format cures, but no overflow or lost update was seen",
        trials=keys_of(ladder.trials),
    )


def lost_numbers(facts: Facts) -> str:
    """Return which half-precision number was lost in the control, empty when none was."""
    for record in facts.controls:
        seen = record.metrics
        if seen.get("half_activation_nonfinite", 0) > 0:
            return "a half-precision activation overflowed"
        if (largest := seen.get("half_activation_absmax", 0.0)) > HALF_LIMIT:
            return f"half-precision activations reached {largest:,.0f} of at most 65,504"
        if seen.get("update_nonfinite_first", 0) > 0:
            return "an update computed in half precision was not finite though its gradient was"
        if (skipped := seen.get("skipped_share", 0.0)) > SKIPPED:
            return f"the loss scaler left out {skipped:.0%} of the updates"
        if (vanished := seen.get("half_zero_gradient_share", 0.0)) > VANISHED:
            return f"{vanished:.0%} of the gradient elements were exactly zero"
    return ""
