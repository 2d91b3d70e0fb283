"""Send to a store what it does not have yet of a run and of everything below it, parents first.

How far it got is recorded after every batch. So it can be killed anywhere and started again, and
what it sends twice is dropped by the store, because the time stamps come from the log.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stabexp.errors import TrackingError
from stabexp.records import StepRecord
from stabexp.tracking.journal import Line, read_lines
from stabexp.tracking.run_directory import (
    EXPERIMENT_ID,
    PARENT_ID,
    STORE_ID,
    TOP_ID,
    RunDirectory,
)
from stabexp.tracking.step_log import decode_step, rewound_to
from stabexp.tracking.step_metrics import BEFORE, StepSampler, metric_rows
from stabexp.tracking.store import (
    DeniedError,
    MetricRow,
    RefusedError,
    RunStore,
    VanishedError,
)
from stabexp.tracking.upload_state import Upload, read_upload, write_problem, write_upload
from stabexp.tracking.web_view import SURVIVED_METRIC, saved_view_tags

BATCH = 1000
"""Rows after which the position is recorded."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """What one pass sent."""

    metrics: int = 0
    operations: int = 0
    refused: int = 0
    """Batches and operations the store would not take; each is named on stderr."""
    complete: bool = True
    """False when the limit ended the pass."""

    def __add__(self, other: Shipped) -> Shipped:
        return Shipped(
            self.metrics + other.metrics,
            self.operations + other.operations,
            self.refused + other.refused,
            self.complete and other.complete,
        )


def ship(path: Path, store: RunStore, *, limit: int | None = None) -> Shipped:
    """Send everything pending of a run directory, of what it belongs to, and of what is below it.

    Args:
        path: A run directory.
        store: Where to send it.
        limit: Metric rows after which to stop, at the next batch.

    Raises:
        UnreachableError: If the store does not answer, or does not let us in; what was sent before
            is recorded.
        TrackingError: If a file is damaged; the other directories were shipped all the same.
    """
    try:
        sent = _ship_tree(path, store, limit)
    except VanishedError:
        # The store was emptied: start again from nothing. Runs that are still there are found.
        for directory in _tree(path):
            write_upload(directory.path, store.uri, Upload())
        sent = _ship_tree(path, store, limit)
    except DeniedError as error:
        write_problem(path, store.uri, str(error))
        raise
    write_problem(path, store.uri, "")
    return sent


def _ship_tree(path: Path, store: RunStore, limit: int | None) -> Shipped:
    total = Shipped()
    damage: TrackingError | None = None
    for directory in _tree(path):
        left = None if limit is None else limit - total.metrics
        if left is not None and left <= 0:
            return replace(total, complete=False)
        try:
            total += _ship_one(directory, store, left)
        except _DamageError as error:
            damage = damage or TrackingError(str(error))
    if damage is not None:
        raise damage
    return total


def pending(path: Path, uri: str | None = None) -> int:
    """Return how many lines of a run directory and its relatives a store does not have yet.

    Args:
        path: A run directory.
        uri: The store; the one named in its manifest by default.
    """
    count = 0
    for directory in _tree(path):
        state = read_upload(directory.path, uri or directory.manifest.tracking_uri)
        count += state.store_id is None
        for name, position in (("steps.jsonl", state.steps), ("outbox.jsonl", state.outbox)):
            count += _lines_after(directory.path / name, position)
    return count


def descendants(directory: RunDirectory) -> Iterator[RunDirectory]:
    """Yield a run directory and everything below it, parents first."""
    yield directory
    for child in directory.children():
        yield from descendants(child)


def _tree(path: Path) -> Iterator[RunDirectory]:
    directory = RunDirectory.open(path)
    above: list[RunDirectory] = []
    ancestor = directory.parent
    while ancestor is not None:
        above.insert(0, ancestor)
        ancestor = ancestor.parent
    yield from above
    yield from descendants(directory)


class _DamageError(Exception):
    pass


def _lines_after(path: Path, position: int) -> int:
    try:
        if path.stat().st_size <= position:
            return 0
        with open(path, "rb") as file:
            file.seek(position)
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except FileNotFoundError:
        return 0


def _ship_one(directory: RunDirectory, store: RunStore, limit: int | None) -> Shipped:
    state = read_upload(directory.path, store.uri)
    new = any(
        _lines_after(directory.path / name, position)
        for name, position in (("steps.jsonl", state.steps), ("outbox.jsonl", state.outbox))
    )
    if state.store_id is not None and not new:
        return Shipped()
    return _Shipment(directory, store, state).send(limit)


class _Shipment:
    """One directory on its way to one store."""

    def __init__(self, directory: RunDirectory, store: RunStore, state: Upload) -> None:
        self.directory = directory
        self.store = store
        self.state = state
        self.store_id = state.store_id or ""
        self.shipped = Shipped()

    def send(self, limit: int | None) -> Shipped:
        if self.state.store_id is None:
            self._create()
        # Read before the steps: when the end is in it, all steps are in the log.
        operations = self._read("outbox.jsonl", self.state.outbox)
        finished = self.directory.status() != "RUNNING"
        if self._send_steps(limit) and finished:
            self._send_tail()
        if not self.shipped.complete:
            return self.shipped
        for line in operations:
            self._try(lambda line=line: self._operate(line.value), str(line.value.get("op")))  # type: ignore[misc]
            self.shipped += Shipped(operations=1)
            self._commit(outbox=line.end)
        return self.shipped

    def _create(self) -> None:
        manifest = self.directory.manifest
        parent = self.directory.parent
        above = read_upload(parent.path, self.store.uri).store_id if parent else None
        run = self.store.find_run(manifest, above) or self.store.create_run(manifest, above)
        self.store_id = run.store_id
        self._try(lambda: self.store.log_params(run.store_id, manifest.params), "params")
        if manifest.kind == "trial" and not self._is_scan:
            # The compare page draws the metric that was logged first.
            begun = [MetricRow(SURVIVED_METRIC, 0.0, int(manifest.created * 1000), 0)]
            self._try(lambda: self.store.log_metrics(run.store_id, begun), "metrics")
        self._commit(store_id=run.store_id, experiment_id=run.experiment_id)

    def _send_steps(self, limit: int | None) -> bool:
        """Send the steps up to the end of the log; False when the limit came first."""
        self._sampler: StepSampler | None = None
        starts: deque[int] = deque(maxlen=BEFORE + BEFORE // 2)
        rows: list[MetricRow] = []
        end = self.state.steps
        for line in self._iterate("steps.jsonl", self.state.window):
            if (start := rewound_to(line.value)) is not None:
                if self._sampler is not None:
                    self._sampler.forget(start)
                end = line.end
                continue
            record = self._decode(line.value)
            if self._sampler is None:
                self._sampler = StepSampler(self._first_step(record))
            chosen = self._sampler.take(record)
            starts.append(line.start)
            if line.start < self.state.steps:
                # Seen in an earlier pass; read again for the sampler's memory only.
                continue
            rows += self._rows(chosen)
            if len(rows) >= BATCH:
                self._send_rows(rows)
                rows = []
                self._commit(steps=line.end, window=starts[0])
                if limit is not None and self.shipped.metrics >= limit:
                    self.shipped = replace(self.shipped, complete=False)
                    return False
            end = line.end
        if end > self.state.steps:
            self._send_rows(rows)
            self._commit(steps=end, window=starts[0])
        return True

    def _send_tail(self) -> None:
        if self._sampler is not None and self.state.tail != self.state.steps:
            self._send_rows(self._rows(self._sampler.rest()))
            self._commit(tail=self.state.steps)

    @property
    def _is_scan(self) -> bool:
        """Whether its steps are samples shown one by one, which make no curve."""
        return self.directory.manifest.tags.get("stabexp.role") == "scan"

    def _rows(self, records: list[StepRecord]) -> list[MetricRow]:
        rows: list[MetricRow] = []
        if self._is_scan:
            return rows
        for record in records:
            if record.clip_coefficient < 1 and not self.state.clipped:
                self.state = replace(self.state, clipped=True)
            rows += metric_rows(record, self.directory.kind, clipped=self.state.clipped)
        return rows

    def _send_rows(self, rows: list[MetricRow]) -> None:
        if rows:
            self._try(lambda: self.store.log_metrics(self.store_id, rows), "metrics of steps")
            self.shipped += Shipped(metrics=len(rows))

    def _first_step(self, read: StepRecord) -> int:
        if not self.state.window:
            return read.step
        return self._decode(next(self._iterate("steps.jsonl", 0)).value).step

    def _operate(self, line: dict[str, Any]) -> None:
        store, store_id, time_ms = self.store, self.store_id, line["time"]
        match line["op"]:
            case "tags":
                store.set_tags(store_id, line["tags"])
            case "experiment_tags":
                store.set_experiment_tags(store_id, line["tags"])
            case "params":
                store.log_params(store_id, line["params"])
            case "metrics":
                values = line["metrics"].items()
                rows = [MetricRow(key, value, time_ms, line["step"]) for key, value in values]
                store.log_metrics(store_id, rows)
            case "dataset":
                store.log_dataset(store_id, line)
            case "artifact":
                file = self.directory.path / line["file"]
                if not file.exists():
                    raise RefusedError(f"{file}: was deleted before it was uploaded")
                store.log_artifact(store_id, file, line["to"])
            case "note":
                store.set_tags(store_id, {"mlflow.note.content": self._with_ids(line["markdown"])})
            case "experiment_note":
                store.describe_experiment(store_id, line["markdown"])
            case "view":
                tags = saved_view_tags(
                    self.directory.run_id, store_id, name=line["name"], time_ms=time_ms
                )
                store.set_experiment_tags(store_id, tags)
            case "status":
                store.set_status(store_id, line["status"], time_ms)
            case other:
                raise RefusedError(f"unknown operation {other!r}: written by a later version?")

    def _with_ids(self, markdown: str) -> str:
        """Return a note in which the ids that only the store knows are put in."""
        above = [self.store_id]
        directory = self.directory
        while (parent := directory.parent) is not None:
            directory = parent
            above.append(read_upload(parent.path, self.store.uri).store_id or "")
        ids = {
            STORE_ID: self.store_id,
            PARENT_ID: above[min(1, len(above) - 1)],
            TOP_ID: above[-1],
            EXPERIMENT_ID: self.state.experiment_id,
        }
        for place, known in ids.items():
            markdown = markdown.replace(place, known)
        return markdown

    def _try(self, action: Callable[[], None], what: str) -> None:
        """Send something; what the store will never take is reported and left behind."""
        try:
            action()
        except VanishedError:
            raise
        except RefusedError as error:
            print(
                f"{self.directory.run_id}: {what} not taken: {error}", file=sys.stderr, flush=True
            )
            self.shipped += Shipped(refused=1)

    def _commit(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        write_upload(self.directory.path, self.store.uri, self.state)

    def _read(self, name: str, start: int) -> list[Line]:
        return list(self._iterate(name, start))

    def _iterate(self, name: str, start: int) -> Iterator[Line]:
        try:
            yield from read_lines(self.directory.path / name, start)
        except TrackingError as error:
            raise _DamageError(str(error)) from error

    def _decode(self, value: dict[str, Any]) -> StepRecord:
        try:
            return decode_step(value)
        except (TypeError, ValueError, AttributeError) as error:
            place = self.directory.path / "steps.jsonl"
            raise _DamageError(f"{place}: not a step record: {error}") from error
