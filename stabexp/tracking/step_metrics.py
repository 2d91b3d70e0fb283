"""Which steps and which numbers of them MLflow gets: a view that stays readable and cheap.

A metric row costs MLflow 0.2 ms, so a long run is thinned: every step of the first 2,000, then 500
steps for every doubling of the length. The last steps, and those around the first non-finite number
of an episode, are sent whole: they are the ones people look at. The step log keeps everything.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from stabexp.records import StepRecord
from stabexp.tracking.manifest import Kind
from stabexp.tracking.store import MetricRow

WHOLE_STEPS = 2000
"""Steps at the start of a run that are all sent."""

BEFORE = 100
"""Steps sent whole before the end and before a non-finite number."""

AFTER = 50
"""Steps sent whole after a non-finite number."""


def nonfinite_count(record: StepRecord) -> int:
    """Return how many things of a step were not finite: parameters, their gradients, loss, norm."""
    count = record.nonfinite_grads + record.nonfinite_params
    return count + (not math.isfinite(record.loss)) + (not math.isfinite(record.grad_norm))


def is_regular(index: int) -> bool:
    """Return whether the step at this distance from the run's first one is sent in any case."""
    if index < WHOLE_STEPS:
        return True
    return index % (4 << ((index // WHOLE_STEPS).bit_length() - 1)) == 0


class StepSampler:
    """Chooses the steps to send, given one after another."""

    def __init__(self, first_step: int) -> None:
        """Start before the run's first step."""
        self._first = first_step
        self._held: deque[StepRecord] = deque(maxlen=BEFORE)
        self._quiet = AFTER
        """Steps since the last non-finite number, at most `AFTER`."""
        self._whole = 0
        """Steps still to be sent whole."""

    def take(self, record: StepRecord) -> list[StepRecord]:
        """Return what to send now: nothing, this step, or it and those held back before it."""
        if nonfinite_count(record):
            if self._quiet >= AFTER:
                self._whole = AFTER
            self._quiet = 0
        else:
            self._quiet = min(AFTER, self._quiet + 1)
        if self._whole:
            self._whole -= 1
            return [*self.rest(), record]
        if is_regular(record.step - self._first):
            return [record]
        self._held.append(record)
        return []

    def forget(self, step: int) -> None:
        """Drop what is held back of this step and later ones: the run goes on from there anew."""
        kept = [record for record in self._held if record.step < step]
        self._held.clear()
        self._held.extend(kept)

    def rest(self) -> list[StepRecord]:
        """Return the latest steps held back, and hold them no longer."""
        held = list(self._held)
        self._held.clear()
        return held


def metric_rows(record: StepRecord, kind: Kind, *, clipped: bool) -> list[MetricRow]:
    """Return the finite numbers of a step as MLflow shows them.

    Args:
        record: The step.
        kind: A trial gets the five curves that are compared; a run gets everything.
        clipped: Whether the run has clipped a gradient so far; if not, the coefficient is left out.
    """
    time_ms = int(record.time * 1000) if math.isfinite(record.time) else 0
    numbers = _compared(record) if kind == "trial" else _everything(record, clipped)
    return [
        MetricRow(key, float(value), time_ms, record.step)
        for key, value in numbers
        if math.isfinite(value)
    ]


def _compared(record: StepRecord) -> Iterator[tuple[str, float]]:
    yield "loss", record.loss
    yield "loss_log10", _log10(record.loss)
    yield "grad_norm", record.grad_norm
    yield "grad_norm_log10", _log10(record.grad_norm)
    yield "lr", record.lr


def _everything(record: StepRecord, clipped: bool) -> Iterator[tuple[str, float]]:
    yield from _compared(record)
    yield "update_ratio", record.update_ratio
    yield "param_norm", record.param_norm
    if record.loss_scale is not None:
        yield "loss_scale", record.loss_scale
    if clipped:
        yield "clip_coefficient", record.clip_coefficient
    if record.seconds > 0 and record.batch_size:
        yield "samples_per_second", record.batch_size / record.seconds
    if count := nonfinite_count(record):
        yield "nonfinite", count
    yield from record.metrics.items()
    for name, layer in (record.layers or {}).items():
        for key, value in layer.items():
            yield f"layers/{name}/{key}", value


def _log10(value: float) -> float:
    """Return the base-10 logarithm, held between -12 and 6; NaN where there is none.

    One loss of 1e95 would press every other curve of a chart into a line.
    """
    return math.log10(min(max(value, 1e-12), 1e6)) if 0 < value < math.inf else math.nan
