"""The numbers of a step log as columns, read without making a record of every step.

A long run with many layers has tens of millions of numbers. So they go from the lines of the log
into arrays; what layers have in common, their names and those of their figures, is kept once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.journal import read_lines
from stabexp.tracking.sample_ids import decode_ids
from stabexp.tracking.step_log import rewound_to

if TYPE_CHECKING:
    import numpy as np

APART = frozenset({"layers", "metrics", "sample_ids"})
"""Fields of a step that are no single value."""
FIELDS: Mapping[str, Any] = {
    field.name: field.default if field.default is not dataclasses.MISSING else math.nan
    for field in dataclasses.fields(StepRecord)
    if field.name not in APART
}
"""Field → what a line without it means."""

Form = tuple[tuple[str, tuple[str, ...]], ...]
"""Layers in order, each with the names of its figures in order."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LayerBlock:
    """The layers of all steps that measured the same layers and figures."""

    form: Form
    steps: array[int]
    values: array[float]
    """Step after step, layer after layer, figure after figure."""

    def grid(self) -> tuple[np.ndarray, list[str]]:
        """Return values by (step, layer, figure), NaN where a layer lacks one, and the figures."""
        import numpy as np

        names = list(dict.fromkeys(chain.from_iterable(figures for _, figures in self.form)))
        width = sum(len(figures) for _, figures in self.form)
        rows = np.frombuffer(self.values, dtype=np.float64).reshape(len(self.steps), width)
        grid = np.full((len(self.steps), len(self.form), len(names)), math.nan)
        column = 0
        for layer, (_, figures) in enumerate(self.form):
            for figure in figures:
                grid[:, layer, names.index(figure)] = rows[:, column]
                column += 1
        return grid, names


class StepColumns:
    """What a step log holds, one list per field."""

    def __init__(self) -> None:
        self.fields: dict[str, list[Any]] = {name: [] for name in FIELDS}
        self.metrics: dict[str, dict[int, float]] = {}
        """Metric → row → value; a row without it has none."""
        self.ids: list[Any] = []
        """Samples of each step, as the log has them; see `sample_ids`."""
        self.layers: dict[Form, LayerBlock] = {}
        self._rows: dict[int, int] = {}
        self.again = False
        """Whether a step comes twice; then the last row of each counts."""

    def __len__(self) -> int:
        return len(self.fields["step"])

    def add(self, values: Mapping[str, Any]) -> None:
        """Take in one line of the log.

        Raises:
            TypeError, ValueError, AttributeError: If it is not a step record.
        """
        step = values.get("step")
        if type(step) is not int:
            raise ValueError(f"step is {step!r}, not a whole number")
        row = len(self)
        self.again |= step in self._rows
        self._rows[step] = row
        for name, usual in FIELDS.items():
            value = values.get(name, usual)
            self.fields[name].append(
                float(value) if isinstance(value, str) and name != "digest" else value
            )
        for name, value in (values.get("metrics") or {}).items():
            self.metrics.setdefault(name, {})[row] = float(value)
        self.ids.append(values.get("sample_ids") or ())
        if layers := values.get("layers"):
            self._add_layers(step, layers)

    def _add_layers(self, step: int, layers: Mapping[str, Mapping[str, Any]]) -> None:
        form = tuple((name, tuple(figures)) for name, figures in layers.items())
        block = self.layers.get(form)
        if block is None:
            block = self.layers[form] = LayerBlock(form=form, steps=array("q"), values=array("d"))
        numbers = chain.from_iterable(figures.values() for figures in layers.values())
        before = len(block.values)
        try:
            block.values.extend(numbers)
        except TypeError:  # "nan" and "inf" are text in JSON
            del block.values[before:]
            again = chain.from_iterable(figures.values() for figures in layers.values())
            block.values.extend(map(float, again))
        block.steps.append(step)

    def forget_from(self, step: int) -> None:
        """Let what was recorded of a step and later ones not count: the run goes on from there."""
        kept = [row for row, number in enumerate(self.fields["step"]) if number < step]
        self._keep(kept)
        for form, block in list(self.layers.items()):
            width = len(block.values) // len(block.steps) if block.steps else 0
            steps, values = array("q"), array("d")
            for place, number in enumerate(block.steps):
                if number < step:
                    steps.append(number)
                    values.extend(block.values[place * width : (place + 1) * width])
            self.layers[form] = dataclasses.replace(block, steps=steps, values=values)

    def _keep(self, rows: Sequence[int]) -> None:
        places = {row: place for place, row in enumerate(rows)}
        self.fields = {name: [column[row] for row in rows] for name, column in self.fields.items()}
        self.ids = [self.ids[row] for row in rows]
        self.metrics = {
            name: {places[row]: value for row, value in column.items() if row in places}
            for name, column in self.metrics.items()
        }
        self._rows = {step: row for row, step in enumerate(self.fields["step"])}

    def settled(self) -> StepColumns:
        """Return the columns in step order; of a step that was run twice, the last one."""
        steps = self.fields["step"]
        if self.again or any(later <= earlier for earlier, later in pairwise(steps)):
            self._keep([self._rows[step] for step in sorted(self._rows)])
        return self

    def sample_ids(self) -> list[tuple[int, ...]]:
        """Return the samples of each step."""
        return [decode_ids(ids) if ids else () for ids in self.ids]


def read_columns(path: Path, *, layers: bool = True) -> StepColumns:
    """Return the columns of a step log; of a missing one, empty ones.

    Without `layers` a log of many layers is read eight times as fast.

    Raises:
        TrackingError: If a line other than a torn last one cannot be read.
    """
    if not layers:
        with suppress(ValueError, TypeError, AttributeError, FileNotFoundError):
            return _read_without_layers(path)
    columns = StepColumns()
    for number, line in enumerate(read_lines(path), start=1):
        try:
            _take_in(columns, line.value if layers else {**line.value, "layers": None})
        except (TypeError, ValueError, AttributeError) as error:
            raise TrackingError(
                f"{path}:{number}: not a step record: {error}; restore the file, or delete the line"
            ) from error
    return columns.settled()


def _take_in(columns: StepColumns, values: Mapping[str, Any]) -> None:
    if (start := rewound_to(values)) is not None:
        columns.forget_from(start)
    else:
        columns.add(values)


def _read_without_layers(path: Path) -> StepColumns:
    """Return the columns of an undamaged log, its layers cut out before its lines are parsed.

    Raises:
        ValueError: If a line is no JSON then: one that is torn, damaged, or oddly named.
    """
    columns = StepColumns()
    with open(path, "rb") as file:
        for raw in file:
            line, begin = raw, raw.find(b',"layers":{')
            if begin >= 0:
                metrics = raw.rfind(b',"metrics":{')
                line = raw[:begin] + (raw[metrics:] if metrics > begin else b"}")
            _take_in(columns, json.loads(line))
    return columns.settled()


def columns_of(records: Sequence[StepRecord]) -> StepColumns:
    """Return the columns of records."""
    columns = StepColumns()
    for record in records:
        columns.add(
            {name: getattr(record, name) for name in FIELDS}
            | {
                "metrics": record.metrics,
                "layers": record.layers,
                "sample_ids": list(record.sample_ids),
            }
        )
    return columns.settled()
