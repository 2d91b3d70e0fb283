"""What a recorded curve would have warned of, and when, beside the step at which its loss left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stabexp.prediction.base import Forecast
from stabexp.prediction.crossing import crossing
from stabexp.prediction.forecasting import warnings_in
from stabexp.prediction.trace import Trace
from stabexp.records import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The warnings a run's steps would have given."""

    source: str
    points: int
    """Records that were judged."""
    first_step: int
    last_step: int
    warnings: tuple[Forecast, ...]
    left: int | None
    """First of three steps above 1.5 times the loss's healthy median, None when it never left."""
    not_seen: tuple[str, ...]
    """What cannot be told because nothing measured it."""

    @property
    def lead(self) -> int | None:
        """Steps from the first warning before the loss left to that moment; None without both."""
        before = [each.step for each in self.warnings if self.left is not None]
        if self.left is None or not before or before[0] >= self.left:
            return None
        return self.left - before[0]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "source": self.source,
            "points": self.points,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "left": self.left,
            "lead": self.lead,
            "warnings": [{**each.figures(), "message": each.message} for each in self.warnings],
            "not_seen": list(self.not_seen),
        }


def outlook_of(records: Sequence[StepRecord], source: str) -> Outlook:
    """Judge at least one record, oldest first, as if the run were live."""
    index = crossing([record.loss for record in records])
    return Outlook(
        source=source,
        points=len(records),
        first_step=records[0].step,
        last_step=records[-1].step,
        warnings=warnings_in(records),
        left=None if index is None else records[index].step,
        not_seen=_not_seen(records),
    )


def _not_seen(records: Sequence[StepRecord]) -> tuple[str, ...]:
    def known(name: str) -> bool:
        return any(getattr(record, name) - getattr(record, name) == 0 for record in records)

    trace = Trace()
    seen = {kind for record in records for kind in trace.measured(record)}
    missing = {
        "a rate that climbs (no learning rate)": not known("lr"),
        "updates that overshoot (no gradient norm)": not known("grad_norm"),
        "weights that grow (no norm of the parameters)": not known("param_norm"),
        "growth of a single layer (no monitor layers)": not any(r.layers for r in records),
        "attention scores (no monitor measured them)": "attention" not in seen,
        "half-precision headroom (no float16 activations measured)": "activation" not in seen,
    }
    return tuple(text for text, is_missing in missing.items() if is_missing)


def outlook_text(found: Outlook) -> str:
    """Return the lines to print."""
    lines = [f"{found.source}: {_headline(found)}"]
    lines += [f"  step {each.step}  {each.message}" for each in found.warnings]
    if found.left is None:
        lines.append("  the loss never stayed above 1.5 times its healthy median")
    else:
        lines.append(f"  the loss left 1.5 times its healthy median at step {found.left}")
    lines += [f"  not looked at: {text}" for text in found.not_seen]
    return "\n".join(lines)


def _headline(found: Outlook) -> str:
    if not found.warnings:
        return f"no warning in steps {found.first_step} to {found.last_step}"
    first = found.warnings[0].step
    if found.lead is None:
        return f"a warning at step {first}"
    return f"a warning at step {first}, {found.lead} steps before the loss left"
