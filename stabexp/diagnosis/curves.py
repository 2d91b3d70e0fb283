"""From a log as written to the curves that are judged: named, in step order, each step once.

A run that went on from a checkpoint writes some steps twice. What was written later counts, and
what the abandoned life wrote beyond that point is dropped, as it never happened in the run that
remained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from stabexp.diagnosis.hidden_nan import unhidden
from stabexp.diagnosis.log import Format, Keep, Log, Series
from stabexp.diagnosis.names import TABLES, Quantity, normal, quantity_of, rank, speaks_of_loss
from stabexp.errors import ConfigError

WIDE = 10
"""A gap this many times the usual distance of two points is worth a word."""
AT_THE_LIMIT = 0.3
"""Share of the gradient norms at their maximum that only clipping explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity over the run."""

    name: str
    """As the log spells it."""
    points: Mapping[int, float]
    """Step → value, in step order, NaN and ±Inf included."""


@dataclass(frozen=True, kw_only=True)
class Curves:
    """All that is known of a run from its log, ready to be judged."""

    source: str
    format: Format
    found: Mapping[Quantity, Curve]
    """Always with a loss."""
    others: Sequence[str] = ()
    warnings: Sequence[str] = ()
    averaged: bool = False
    clipped: bool = False
    """True when the gradient norms were recorded after clipping."""
    interval: int = 1
    """Usual distance of two points of the loss, in steps."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    recorded_by: str | None = None

    @property
    def loss(self) -> Curve:
        """The training loss."""
        return self.found["loss"]


def keeper(chosen: Mapping[Quantity, str]) -> Keep:
    """Return which curves a reader should keep, by name."""
    named = set(chosen.values())
    return lambda name: name in named or speaks_of_loss(name) or quantity_of(name) is not None


def curves_of(log: Log, source: str, chosen: Mapping[Quantity, str] | None = None) -> Curves:
    """Return the log's curves by what they show.

    Args:
        log: As read.
        source: What the user called it, for messages.
        chosen: Quantity → the curve's name in the log, where the user said so.

    Raises:
        ConfigError: If there is no training loss, or no curve of a chosen name.
    """
    chosen = chosen or {}
    names = {quantity: _name(log, source, quantity, chosen.get(quantity)) for quantity in TABLES}
    if names["loss"] is None:
        raise ConfigError(_no_loss(log, source))
    warnings = list(log.warnings)
    found: dict[Quantity, Curve] = {}
    for quantity, name in names.items():
        if name is not None:
            points, notes = ordered(log.series[name])
            found[quantity] = Curve(name=name, points=points)
            if quantity == "loss":
                warnings += [f"{name!r}: {note}" for note in notes]
    losses, notes = unhidden(
        found["loss"].points,
        found["grad_norm"].points if "grad_norm" in found else {},
        trainer=log.format == "Hugging Face trainer state",
    )
    found["loss"] = Curve(name=found["loss"].name, points=losses)
    warnings += notes
    interval = _interval(found["loss"].points)
    warnings += _gap(found["loss"], interval)
    clipped = _clipped(found["grad_norm"]) if "grad_norm" in found else None
    warnings += [clipped] if clipped else []
    used = {curve.name for curve in found.values()}
    return Curves(
        source=source,
        format=log.format,
        found=found,
        others=sorted({*log.others, *log.series} - used),
        warnings=tuple(warnings),
        averaged=log.averaged,
        clipped=clipped is not None,
        interval=interval,
        settings=log.settings,
        recorded_by=log.recorded_by,
    )


def _name(log: Log, source: str, quantity: Quantity, chosen: str | None) -> str | None:
    """Return which curve shows a quantity: the chosen one, else the one that fits best."""
    if chosen is not None:
        if chosen in log.series:
            return chosen
        alike = [name for name in log.series if normal(name) == normal(chosen)]
        if len(alike) == 1:
            return alike[0]
        option = {"loss": "--loss", "grad_norm": "--grad-norm", "lr": "--lr"}[quantity]
        raise ConfigError(f"{source}: {option} {chosen}: no such curve; there are {_listed(log)}")
    fitting = [
        (len(series.values) < 2, order, name)
        for name, series in log.series.items()
        if (order := rank(quantity, name)) is not None
    ]
    return min(fitting)[2] if fitting else None


def _no_loss(log: Log, source: str) -> str:
    losses = [name for name in [*log.series, *log.others] if speaks_of_loss(name)]
    if losses:
        return (
            f"{source}: no curve is surely the training loss; if it is one of "
            f"{', '.join(map(repr, losses[:8]))}, say so: --loss NAME"
        )
    return (
        f"{source}: no training loss found; there are {_listed(log)}. If one of them is the loss, "
        "say so: --loss NAME"
    )


def _listed(log: Log) -> str:
    names = list(dict.fromkeys([*log.series, *log.others]))
    shown = ", ".join(map(repr, names[:12])) or "no curves at all"
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def ordered(series: Series) -> tuple[dict[int, float], list[str]]:
    """Return step → value in step order, and what had to be decided for it."""
    if len(series.steps) > 1 and len(set(series.steps)) == 1:
        note = f"every point has step {series.steps[0]}, as when none is given; counted from 0"
        return dict(enumerate(series.values)), [note]
    points: dict[int, float] = {}
    written: list[int] = []
    again, dropped = 0, 0
    back: tuple[int, int] | None = None
    for step, value in zip(series.steps, series.values, strict=True):
        if step in points:
            if step < written[-1]:
                back = back or (written[-1], step)
                while written and written[-1] >= step:
                    dropped += points.pop(written.pop(), None) is not None
            else:
                again += 1
        points[step] = value
        written.append(step)
    notes = []
    if back is not None:
        notes.append(
            f"the log goes back from step {back[0]} to {back[1]}, as a resumed run does; what was "
            f"written later counts, {dropped} earlier point(s) do not"
        )
    if again:
        notes.append(f"{again} step(s) were written twice in a row; the last value counts")
    if any(after < before for before, after in pairwise(points)):
        notes.append("the steps were not in order and were sorted")
        points = dict(sorted(points.items()))
    return points, notes


def _interval(points: Mapping[int, float]) -> int:
    distances = [after - before for before, after in pairwise(points)]
    return round(median(distances)) if distances else 1


def _gap(loss: Curve, interval: int) -> list[str]:
    wide = [
        (after - before, before, after)
        for before, after in pairwise(loss.points)
        if after - before > WIDE * interval
    ]
    if not wide:
        return []
    _, before, after = max(wide)
    return [f"{loss.name!r} has no points between step {before} and step {after}"]


def _clipped(curve: Curve) -> str | None:
    """Return a warning when the norms were recorded after clipping, which hides their size.

    Clipped norms end at one figure, again and again.
    """
    norms = [norm for norm in curve.points.values() if math.isfinite(norm)]
    if len(norms) < 10:
        return None
    top = max(norms)
    share = sum(norm >= 0.999 * top for norm in norms) / len(norms)
    if share < AT_THE_LIMIT or top <= 0:
        return None
    return (
        f"{curve.name!r} was recorded after clipping: {share:.0%} of it lies at its maximum of "
        f"{top:.4g}. How large the gradients were is not known"
    )
