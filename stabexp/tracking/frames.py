"""Steps and trials as pandas tables, one row each, for notebooks and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stabexp.records import StepRecord, TrialRecord

if TYPE_CHECKING:
    import pandas

_STEP_COLUMNS = [
    field.name
    for field in dataclasses.fields(StepRecord)
    if field.name not in {"layers", "metrics"}
]


def steps_frame(records: Iterable[StepRecord]) -> pandas.DataFrame:
    """Return one row per step: a column per field, "metrics/<name>" and "layers/<name>/<what>".

    A number that a step does not have is NaN.
    """
    import pandas

    rows: list[dict[str, Any]] = []
    for record in records:
        row = {column: getattr(record, column) for column in _STEP_COLUMNS}
        row["loss_scale"] = float("nan") if record.loss_scale is None else record.loss_scale
        row |= {f"metrics/{name}": value for name, value in record.metrics.items()}
        for layer, values in (record.layers or {}).items():
            row |= {f"layers/{layer}/{what}": value for what, value in values.items()}
        rows.append(row)
    return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=_STEP_COLUMNS)


def trials_frame(records: Iterable[TrialRecord]) -> pandas.DataFrame:
    """Return one row per trial, in the given order; summary figures are "metrics/<name>"."""
    import pandas

    rows: list[dict[str, Any]] = []
    for record in records:
        found = record.divergence
        row: dict[str, Any] = {
            "number": record.number,
            "name": record.name,
            "role": record.spec.role,
            "variable": record.spec.variable,
            "dose": record.spec.dose,
            "outcome": record.outcome,
            "from_step": record.spec.from_step,
            "until_step": record.spec.until_step,
            "last_step": record.last_step,
            "steps": record.steps,
            "detector": found.detector if found else None,
            "onset": found.onset if found else float("nan"),
            "detected": found.detected if found else float("nan"),
            "start_loss": record.start_loss,
            "end_loss": record.end_loss,
            "seconds": record.seconds,
            "key": record.spec.key,
            "directory": record.directory,
            "note": record.note,
        }
        rows.append(row | {f"metrics/{name}": value for name, value in record.metrics.items()})
    return pandas.DataFrame(rows)
