"""A diagnosis as text for the terminal: what was found, how sure, and what to type next."""

from __future__ import annotations

import math

from stabexp.diagnosis.findings_text import findings_lines
from stabexp.diagnosis.findings_text import wrapped as _wrapped
from stabexp.diagnosis.result import Diagnosis
from stabexp.records import FAMILIES

LISTED = 12
"""Unused curves that are named."""


def diagnosis_text(found: Diagnosis) -> str:
    """Return the lines to print, without the last line's end."""
    lines = [f"{found.source} ({found.format}): {_headline(found)}"]
    if found.divergence is not None and found.onset_between is not None:
        first, last = found.onset_between
        onset = f"step {last}" if first == last else f"between step {first} and step {last}"
        lines += [
            f"  onset     {onset}",
            f"  detected  step {found.divergence.detected}, by {found.divergence.detector}",
            f"  pattern   {found.divergence.pattern.replace('_', ' ')}",
            *_wrapped("  what      ", found.divergence.message),
        ]
        if found.recovered:
            lines += _wrapped(
                "  since     ", "it came back: the loss ends no higher than it was before the onset"
            )
    lines += ["", "read"]
    for curve in found.used:
        name = "" if curve.name == curve.quantity else f" = {curve.name!r}"
        lines.append(f"  {curve.quantity}{name}, {curve.points} points")
    if found.not_used:
        shown = ", ".join(found.not_used[:LISTED])
        more = f" and {len(found.not_used) - LISTED} more" if len(found.not_used) > LISTED else ""
        lines += _wrapped("  not used: ", shown + more)
    lines += [line for warning in found.warnings for line in _wrapped("  ! ", warning)]
    lines += ["", "checked"]
    for check in found.checks:
        word = "" if check.judged else "not applicable: "
        lines += _wrapped(f"  {check.detector}", f"  {word}{check.note}" if check.note else "")
    lines += findings_lines(found)
    if found.opinion is not None:
        cause = found.opinion.cause
        named = f"{cause.replace('_', ' ')} (family: {FAMILIES[cause]})"
        if cause == "inconclusive":
            named = "no cause stands out"
        lines += ["", *_wrapped("opinion, not a verdict: ", f"{named}; {found.opinion.reason}")]
        lines += [line for limit in found.opinion.limits for line in _wrapped("  - ", limit)]
    lines += ["", *_wrapped("next: ", found.next_step), f"  {found.next_command}"]
    return "\n".join(lines)


def _headline(found: Diagnosis) -> str:
    span = f"steps {found.first_step} to {found.last_step}"
    if found.divergence is not None:
        return f"diverged ({span})"
    end = "not finite" if math.isnan(found.last_loss) else f"{found.last_loss:.4g}"
    return f"no divergence found ({span}; the loss went from {found.first_loss:.4g} to {end})"
