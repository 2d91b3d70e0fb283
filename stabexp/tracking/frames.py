"""Steps, layers, trials and events as pandas tables, for notebooks and figures.

A number that a step does not have is <NA>; one that is NaN or ±Inf stays what it is, except in
columns that not every step has, where pandas takes NaN for <NA>.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from stabexp.records import Outcome, Role, StepRecord, TrialRecord
from stabexp.tracking.step_columns import LayerBlock, StepColumns, columns_of

if TYPE_CHECKING:
    import pandas

WHOLE = ("step", "nonfinite_grads", "nonfinite_params", "position", "batch_size")
"""Fields of a step that are whole numbers."""


def steps_frame(steps: StepColumns | Iterable[StepRecord]) -> pandas.DataFrame:
    """Return one row per step: a column per field, and "metrics/<name>".

    `loss_scale` and metrics that not every step has are nullable. Layers have a table of their own,
    and so have samples.
    """
    import numpy as np
    import pandas

    columns = steps if isinstance(steps, StepColumns) else columns_of(list(steps))
    made: dict[str, Any] = {}
    for name, values in columns.fields.items():
        if name == "loss_scale":
            made[name] = pandas.array(values, dtype="Float64")
        elif name == "digest":
            made[name] = pandas.array(values, dtype="str")
        elif name == "skipped":
            made[name] = np.array(values, dtype=bool)
        else:
            made[name] = np.array(values, dtype=np.int64 if name in WHOLE else np.float64)
    for name, found in columns.metrics.items():
        values = [found.get(row) for row in range(len(columns))]
        whole = len(found) == len(columns)
        made[f"metrics/{name}"] = (
            np.array(values, dtype=np.float64) if whole else pandas.array(values, dtype="Float64")
        )
    return pandas.DataFrame(made)


def layers_frame(steps: StepColumns | Iterable[StepRecord]) -> pandas.DataFrame:
    """Return one row per step and layer that was measured: step, layer and a column per figure.

    Layers are an ordered categorical, in the order of the model. A figure that a layer does not
    have is NaN.
    """
    import pandas

    columns = steps if isinstance(steps, StepColumns) else columns_of(list(steps))
    blocks = [block for block in columns.layers.values() if block.steps]
    if not blocks:
        empty = pandas.Categorical([], ordered=True)
        return pandas.DataFrame({"step": pandas.array([], dtype="int64"), "layer": empty})
    names = list(dict.fromkeys(layer for block in blocks for layer, _ in block.form))
    frames = [_block_frame(block, names) for block in blocks]
    frame = frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
    if columns.again:
        frame = frame.drop_duplicates(["step", "layer"], keep="last")
    if columns.again or not frame["step"].is_monotonic_increasing:
        frame = frame.sort_values(["step", "layer"], ignore_index=True, kind="stable")
    return frame


def _block_frame(block: LayerBlock, names: Sequence[str]) -> pandas.DataFrame:
    import numpy as np
    import pandas

    grid, figures = block.grid()
    count, layers, _ = grid.shape
    codes = np.array([names.index(layer) for layer, _ in block.form])
    frame: dict[str, Any] = {
        "step": np.repeat(np.frombuffer(block.steps, dtype=np.int64), layers),
        "layer": pandas.Categorical.from_codes(
            np.tile(codes, count), pandas.Index(list(names)), ordered=True
        ),
    }
    for place, figure in enumerate(figures):
        frame[figure] = grid[:, :, place].reshape(-1)
    return pandas.DataFrame(frame)


def sample_ids_frame(columns: StepColumns) -> pandas.DataFrame:
    """Return one row per use of a sample: step, place in the step, sample."""
    import numpy as np
    import pandas

    ids = columns.sample_ids()
    lengths = np.array([len(each) for each in ids], dtype=np.int64)
    steps = np.array(columns.fields["step"], dtype=np.int64)
    flat = [sample for each in ids for sample in each]
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return pandas.DataFrame(
        {
            "step": np.repeat(steps, lengths),
            "place": np.arange(len(flat), dtype=np.int64) - starts,
            "sample": np.array(flat, dtype=np.int64),
        }
    )


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
            "onset": found.onset if found else None,
            "detected": found.detected if found else None,
            "start_loss": record.start_loss,
            "end_loss": record.end_loss,
            "seconds": record.seconds,
            "reason": record.spec.reason,
            "key": record.spec.key,
            "directory": record.directory,
            "note": record.note,
        }
        rows.append(row | {f"metrics/{name}": value for name, value in record.metrics.items()})
    frame = pandas.DataFrame(rows, columns=None if rows else [*TRIAL_COLUMNS])
    return frame.astype(_dtypes(frame))


TRIAL_COLUMNS = (
    *("number", "name", "role", "variable", "dose", "outcome", "from_step", "until_step"),
    *("last_step", "steps", "detector", "onset", "detected", "start_loss", "end_loss", "seconds"),
    *("reason", "key", "directory", "note"),
)
"""Columns of `trials_frame` that are always there."""


def _dtypes(frame: pandas.DataFrame) -> dict[str, Any]:
    import pandas

    found: dict[str, Any] = {
        "role": pandas.CategoricalDtype(list(get_args(Role))),
        "outcome": pandas.CategoricalDtype(list(get_args(Outcome))),
        "dose": object,  # a number for one variable, a text for another
    }
    for name in ("number", "from_step", "until_step", "last_step", "steps"):
        found[name] = "int64"
    for name in ("onset", "detected"):
        found[name] = "Int64"
    for name in ("start_loss", "end_loss", "seconds"):
        found[name] = "float64"
    for name in ("name", "variable", "detector", "reason", "key", "directory", "note"):
        found[name] = "str"
    for name in frame.columns:
        if name.startswith("metrics/"):
            found[name] = "Float64"
    return found


def trial_steps_frame(
    trials: Iterable[tuple[TrialRecord, StepColumns]],
) -> pandas.DataFrame:
    """Return the steps of all trials, one row each, with the trial's number, role and outcome."""
    import pandas

    frames = []
    for record, columns in trials:
        frame = steps_frame(columns)
        frame.insert(0, "trial", record.number)
        frame.insert(1, "name", record.name)
        frame.insert(2, "role", record.spec.role)
        frame.insert(3, "variable", record.spec.variable)
        frame.insert(4, "outcome", record.outcome)
        frames.append(frame)
    if not frames:
        empty = steps_frame([])
        for place, name in enumerate(("trial", "name", "role", "variable", "outcome")):
            empty.insert(place, name, pandas.Series(dtype="str" if place else "int64"))
        frames = [empty]
    whole = pandas.concat(frames, ignore_index=True)
    kinds: dict[str, Any] = {
        "role": pandas.CategoricalDtype(list(get_args(Role))),
        "outcome": pandas.CategoricalDtype(list(get_args(Outcome))),
        "name": "category",
        "variable": "category",
    }
    return whole.astype(kinds)


def events_frame(events: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return one row per event: step, by, message, and a column per further figure."""
    import pandas

    rows = [dict(event) for event in events]
    names = dict.fromkeys(["step", "by", "message", *(name for row in rows for name in row)])
    frame = pandas.DataFrame(rows, columns=list(names))
    return frame.astype({"step": "Int64", "by": "str", "message": "str"})
