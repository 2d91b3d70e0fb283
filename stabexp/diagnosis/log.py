"""What a reader returns: curves under the names they have in the log, in the order written.

Nothing is judged, mapped or repaired here beyond what only the reader can see: cells that hold no
number, steps that start anew in each epoch, and empty cells that stand for NaN (pandas writes NaN
into a CSV as nothing at all).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from stabexp.diagnosis.names import EPOCH, STEP, pick
from stabexp.diagnosis.numbers import is_empty, number, step_number

Keep = Callable[[str], bool]
"""Whether a curve of this name is worth keeping; of the others only the name is remembered."""

Format = Literal[
    "stabexp run",
    "MLflow run",
    "Hugging Face trainer state",
    "CSV",
    "JSON lines",
    "JSON",
    "TensorBoard events",
]


@dataclass(frozen=True, slots=True)
class Series:
    """One curve as written: `steps[i]` belongs to `values[i]`."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, step: int, value: float) -> None:
        """Append a point."""
        self.steps.append(step)
        self.values.append(value)


@dataclass(frozen=True, kw_only=True)
class Log:
    """Everything a log holds that may matter."""

    format: Format
    series: Mapping[str, Series]
    others: Sequence[str] = ()
    """Names of curves that were not kept."""
    warnings: Sequence[str] = ()
    """What is odd about it, one sentence each."""
    averaged: bool = False
    """True when a point is the mean over the steps since the point before."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it says about the configuration, as `detectors.opinion` takes it."""
    recorded_by: str | None = None
    """The stabexp run id, when stabexp recorded it."""


class _Plan(NamedTuple):
    """What the cells of a row are."""

    step: str | None
    epoch: str | None
    kept: tuple[str, ...]


class Rows:
    """Gathers rows of named cells, one row after another, into series."""

    def __init__(self, keep: Keep, *, place: str = "line") -> None:
        """Start empty; `place` is what a row's number counts."""
        self._keep = keep
        self._place = place
        self._series: dict[str, Series] = {}
        self._others: dict[str, None] = {}
        self._plans: dict[tuple[str, ...], _Plan] = {}
        self._full: dict[str, frozenset[str]] = {}
        """Curve → the cells that were filled when it last had a number."""
        self._holes: dict[str, list[int]] = {}
        """Curve → steps of the rows of the same kind since then whose cell is empty."""
        self._sparse: set[str] = set()
        """Curves with such holes between numbers: an empty cell means nothing there."""
        self._bad: list[str] = []
        self._bad_count = 0
        self._no_step = 0
        self._counted = -1
        self._stepless = False
        self._offset = 0
        self._anew = 0
        self._last: tuple[int, float | None] | None = None

    def add(self, row: int, cells: Mapping[str, object]) -> None:
        """Take in one row; `row` is its number in the file, for messages."""
        filled = frozenset(name for name, cell in cells.items() if not is_empty(cell))
        if not filled:
            return
        plan = self._plan(tuple(cells))
        step = self._step(row, cells, plan, counts=not filled.isdisjoint(plan.kept))
        if step is None:
            return
        for name in plan.kept:
            if name in filled:
                self._number(row, name, step, cells[name], filled)
            elif name in self._full and filled < self._full[name]:
                self._holes.setdefault(name, []).append(step)

    def _plan(self, names: tuple[str, ...]) -> _Plan:
        """Return what the cells of a row with these names are; the same for thousands of rows."""
        if names not in self._plans:
            step = pick(names, STEP)
            kept = tuple(name for name in names if name != step and self._keep(name))
            self._others.update(dict.fromkeys(n for n in names if n != step and n not in kept))
            self._plans[names] = _Plan(step, pick(names, EPOCH), kept)
        return self._plans[names]

    def result(self) -> tuple[dict[str, Series], list[str], list[str]]:
        """Return the series, the names not kept, and warnings."""
        warnings = []
        if self._bad_count:
            warnings.append(
                f"{self._bad_count} cell(s) hold no number and were skipped: {'; '.join(self._bad)}"
            )
        if self._no_step:
            warnings.append(f"{self._no_step} row(s) have no usable step and were skipped")
        if self._stepless and self._series:
            warnings.append("the log has no column of steps; its rows were counted from 0")
        if self._anew:
            warnings.append(
                f"steps start anew in each epoch ({self._anew + 1} of them); they were counted on"
            )
        for name, holes in self._holes.items():
            if holes and name not in self._sparse:
                for step in holes:
                    self._series[name].add(step, math.nan)
                warnings.append(
                    f"{name!r} is empty in the last {len(holes)} row(s) of its kind, from step "
                    f"{holes[0]} on; pandas and some JSON writers write NaN so, and it was read so"
                )
        others = [name for name in self._others if pick([name], (*STEP, *EPOCH)) is None]
        return self._series, others, warnings

    def _number(self, row: int, name: str, step: int, cell: object, filled: frozenset[str]) -> None:
        value = number(cell)
        if value is None:
            self._bad_count += 1
            if len(self._bad) < 3:
                self._bad.append(f"{self._place} {row}: {name} is {_short(cell)}")
            return
        self._series.setdefault(name, Series()).add(step, value)
        self._full[name] = filled
        if self._holes.pop(name, None):
            self._sparse.add(name)

    def _step(
        self, row: int, cells: Mapping[str, object], plan: _Plan, *, counts: bool
    ) -> int | None:
        """Return the row's step, counted on where steps start anew in each epoch."""
        if plan.step is None:
            self._stepless = True
            self._counted += counts
            return self._counted if counts else None
        step = step_number(cells[plan.step])
        if step is None:
            self._no_step += counts
            return None
        epoch = None if plan.epoch is None else number(cells[plan.epoch])
        if not counts:
            return step + self._offset
        if self._last is not None:
            last, last_epoch = self._last
            if epoch is not None and last_epoch is not None and epoch > last_epoch and step < last:
                self._offset += last + 1
                self._anew += 1
        self._last = (step, epoch)
        return step + self._offset


def _short(cell: object) -> str:
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}…"
