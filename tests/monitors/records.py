"""What a monitor makes of records, one after another."""

from __future__ import annotations

from dataclasses import replace

from stabexp.records import StepRecord


def seen(monitor, **series):
    """Return what is recorded at each step whose figures are given."""
    history = []
    for step, values in enumerate(zip(*series.values(), strict=True)):
        figures = {"loss": 1.0, **dict(zip(series, values, strict=True))}
        record = StepRecord(step=step, time=0.0, lr=0.1, grad_norm=1.0, **figures)
        metrics = {**record.metrics, **monitor.recorded(record, history)}
        history.append(replace(record, metrics=metrics))
    return [record.metrics for record in history]
