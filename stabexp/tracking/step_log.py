"""One line per step, written before the next step starts: the record that everything reads.

Numbers are kept exactly. JSON has no NaN and no ±Inf, so they are written as the strings "nan",
"inf" and "-inf"; fields at their default are left out.

A run that goes on from an earlier step says so in a line of its own, {"rewound_to": STEP}: what was
recorded of that step and later ones before that line no longer counts. So the file only grows, and
whoever is reading it never loses his place.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.journal import Journal, read_lines
from stabexp.tracking.sample_ids import decode_ids, encode_ids

_NUMBERS = frozenset(
    field.name
    for field in dataclasses.fields(StepRecord)
    if field.type in {"float", "float | None"}
)
_FIELDS = frozenset(field.name for field in dataclasses.fields(StepRecord))


class StepLog:
    """The writing end of a step log."""

    def __init__(self, path: Path) -> None:
        """Open or create the log, and cut off a torn last line."""
        self._journal = Journal(path)

    def append(self, record: StepRecord) -> None:
        """Add a record; it survives the death of this process.

        Raises:
            TrackingError: If it cannot be written; the log stays readable.
        """
        self._journal.append(encode_step(record))

    def rewind(self, step: int) -> None:
        """Enter that the run goes on from `step`: what is recorded from there on is void.

        Raises:
            TrackingError: If it cannot be written.
        """
        self._journal.append(f'{{"rewound_to":{step:d}}}')

    def close(self) -> None:
        """Bring everything to the disk itself and close."""
        self._journal.close()


def read_steps(path: Path) -> list[StepRecord]:
    """Return the records of a log in step order; of a step that was run twice, the last one.

    Raises:
        TrackingError: If a line other than a torn last one cannot be read.
    """
    steps: dict[int, StepRecord] = {}
    for number, line in enumerate(read_lines(path), start=1):
        try:
            if (start := rewound_to(line.value)) is not None:
                steps = {step: record for step, record in steps.items() if step < start}
                continue
            record = decode_step(line.value)
        except (TypeError, ValueError, AttributeError) as error:
            raise TrackingError(
                f"{path}:{number}: not a step record: {error}; restore the file, or delete the line"
            ) from error
        steps[record.step] = record
    return [steps[step] for step in sorted(steps)]


def rewound_to(values: Mapping[str, Any]) -> int | None:
    """Return the step from which the run went on anew, None when the line holds a step."""
    return int(values["rewound_to"]) if "rewound_to" in values else None


def encode_step(r: StepRecord) -> str:  # noqa: PLR0912
    """Return a record as one line of JSON, built by hand: training waits for it."""
    text = (
        f'{{"step":{r.step:d},"time":{_number(r.time)},"loss":{_number(r.loss)},'
        f'"lr":{_number(r.lr)},"grad_norm":{_number(r.grad_norm)}'
    )
    if r.clip_coefficient != 1.0:
        text += f',"clip_coefficient":{_number(r.clip_coefficient)}'
    if r.update_ratio == r.update_ratio:
        text += f',"update_ratio":{_number(r.update_ratio)}'
    if r.param_norm == r.param_norm:
        text += f',"param_norm":{_number(r.param_norm)}'
    if r.loss_scale is not None:
        text += f',"loss_scale":{_number(r.loss_scale)}'
    if r.skipped:
        text += ',"skipped":true'
    if r.nonfinite_grads:
        text += f',"nonfinite_grads":{r.nonfinite_grads:d}'
    if r.nonfinite_params:
        text += f',"nonfinite_params":{r.nonfinite_params:d}'
    if r.position:
        text += f',"position":{r.position:d}'
    if r.batch_size:
        text += f',"batch_size":{r.batch_size:d}'
    if r.sample_ids:
        text += f',"sample_ids":{json.dumps(encode_ids(r.sample_ids))}'
    if r.seconds == r.seconds:
        text += f',"seconds":{_number(r.seconds)}'
    if r.digest:
        text += f',"digest":{json.dumps(r.digest)}'
    if r.layers is not None:
        layers = ",".join(f"{json.dumps(k)}:{_mapping(v)}" for k, v in r.layers.items())
        text += f',"layers":{{{layers}}}'
    if r.metrics:
        text += f',"metrics":{_mapping(r.metrics)}'
    return text + "}"


def decode_step(values: Mapping[str, Any]) -> StepRecord:
    """Return the record a line holds; keys of a later version are ignored.

    Raises:
        TypeError, ValueError, AttributeError: If it is not a step record.
    """
    known: dict[str, Any] = {
        key: float(value) if key in _NUMBERS and value is not None else value
        for key, value in values.items()
        if key in _FIELDS
    }
    if "sample_ids" in known:
        known["sample_ids"] = decode_ids(known["sample_ids"])
    if "metrics" in known:
        known["metrics"] = {k: float(v) for k, v in known["metrics"].items()}
    if known.get("layers") is not None:
        known["layers"] = {
            name: {k: float(v) for k, v in layer.items()} for name, layer in known["layers"].items()
        }
    if type(known.get("step")) is not int:
        raise ValueError(f"step is {known.get('step')!r}, not a whole number")
    return StepRecord(**known)


def _number(value: float) -> str:
    value = float(value)
    return repr(value) if value - value == 0 else f'"{value!r}"'


def _mapping(values: Mapping[str, float]) -> str:
    return "{" + ",".join(f"{json.dumps(k)}:{_number(v)}" for k, v in values.items()) + "}"
