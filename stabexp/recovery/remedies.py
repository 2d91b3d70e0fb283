"""A remedy: what a run does differently from its checkpoint on, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from stabexp.records import Change, RemedyName
from stabexp.recovery.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to try."""

    name: RemedyName
    why: str
    """The evidence for it, in one or two sentences."""
    changes: tuple[Change, ...] = ()
    """What a replay with it changes, and what a run with it changes for as long as it lasts."""
    conservative: bool = False
    """Whether it is one of several for want of a cause; the one that learns best counts."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Dotted experiment keys to set, where interventions would not do."""
    from_scratch: bool = False
    """Whether the run starts again at step 0."""

    @property
    def forgets(self) -> bool:
        """Whether the optimizer's state is emptied at the fork, once."""
        return any(c.variable == "optimizer_state" and c.dose == "fresh" for c in self.changes)

    @property
    def caps_rate(self) -> bool:
        """Whether the rate may not rise above what it is at the fork."""
        return any(c.variable == "hold_rate" for c in self.changes)


EASING = ("learning_rate", "clip_norm", "hold_rate")
"""Changes that a danger window can put in force and give back."""
RAMP_LEAST = 10
"""Fewest steps over which the original setting is given back."""


def settings_of(
    remedy: Remedy,
    had: Mapping[str, Any],
    window: Window,
    *,
    give_back: bool,
    eased: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the dotted experiment keys that a run with the remedy sets differently.

    Args:
        remedy: What is to be changed.
        had: The interventions that the crashed run has already: variable → dose.
        window: The danger window of the new run.
        give_back: Whether rate and clip are ramped back after the window.
        eased: The danger window that the crashed run has had already. What was given back once and
            crashed again is not given back a second time.
    """
    before = dict(eased or {})
    give_back = give_back and before.get("ramp") is None
    # A rate that is held is held to what it was at the fork, which a later resume could not tell.
    in_window = remedy.caps_rate or (give_back and not remedy.from_scratch)
    changes = [
        change
        for change in remedy.changes
        if not (in_window and change.variable in EASING)
        and not (change.variable == "optimizer_state" and change.dose == "fresh")
    ]
    settings = dict(remedy.settings)
    for change in changes:
        dose = together(change.variable, had.get(change.variable), change.dose)
        settings[f"interventions.{change.variable}"] = dose
    if in_window and any(change.variable in EASING for change in remedy.changes):
        doses = {change.variable: change.dose for change in remedy.changes}
        clips = [c for c in (doses.get("clip_norm"), before.get("clip")) if c is not None]
        inside: dict[str, Any] = {
            "first": window.first,
            "last": window.last,
            "rate": float(doses.get("learning_rate", 1.0)) * float(before.get("rate", 1.0)),
            "cap": "hold_rate" in doses or bool(before.get("cap")),
            "clip": min(clips, default=None),
            "ramp": max(RAMP_LEAST, (window.last - window.first) // 2) if give_back else None,
        }
        settings |= {f"stabilisers.danger_window.{key}": value for key, value in inside.items()}
    return settings


_T = TypeVar("_T")

ALIKE = 0.01
"""Share by which the ends of two replays may differ and still be taken for equally good. They see
the same batches, so it need not cover the noise of these."""


def learns_best(survived: Sequence[tuple[float, _T]]) -> _T | None:
    """Return the first remedy whose replay ended about as low as the best one; None for none.

    Args:
        survived: The loss at the end of its replay and the remedy, mildest first.
    """
    if not survived:
        return None
    lowest = min(end for end, _ in survived)
    return next(r for end, r in survived if end <= lowest + ALIKE * abs(lowest))


def with_samples(remedy: Remedy, more: Sequence[int]) -> Remedy:
    """Return a remedy that replaces more samples than it did."""
    (change,) = remedy.changes
    dose = together(change.variable, change.dose, ",".join(map(str, sorted(more))))
    return replace(
        remedy,
        changes=(replace(change, dose=dose),),
        why=f"{remedy.why}, and {len(more)} more on which the run without them crashed",
    )


def together(variable: str, had: Any, dose: Any) -> Any:
    """Return the one dose that does what both do; the new one where they exclude each other."""
    if had is None:
        return dose
    if variable in {"learning_rate", "weight_decay", "gradient_scale"}:
        return float(had) * float(dose)
    if variable in {"clip_norm", "loss_clamp"}:
        return min(float(had), float(dose))
    if variable in {"replace_samples", "safe_operation", "skip_updates", "exact_modules"}:
        return ",".join(dict.fromkeys([*str(had).split(","), *str(dose).split(",")]))
    return dose
