"""What a tracking store must be able to do, and one that keeps everything in memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stabexp.errors import TrackingError
from stabexp.tracking.manifest import Manifest, Status


class UnreachableError(TrackingError):
    """The store does not answer, or will not for now: try again later."""


class DeniedError(UnreachableError):
    """The store does not accept the credentials: try again with others."""


class RefusedError(TrackingError):
    """The store will not take this, however often it is sent."""


class VanishedError(RefusedError):
    """The store no longer knows the run: it was emptied, or the run was deleted for good."""


class StoredRun(NamedTuple):
    """Where a store keeps a run."""

    store_id: str
    experiment_id: str


class MetricRow(NamedTuple):
    """One point of one curve; the value is finite."""

    key: str
    value: float
    timestamp_ms: int
    step: int


class ReadRun(NamedTuple):
    """What a store holds of a run, whoever logged it."""

    name: str
    curves: Mapping[str, tuple[tuple[int, float], ...]]
    """Metric → (step, value) in the order logged, NaN and ±Inf included."""
    others: tuple[str, ...]
    """Names of metrics that were not asked for."""
    params: Mapping[str, str]
    tags: Mapping[str, str]


class RunStore(Protocol):
    """What the uploader needs. Every verb may be repeated with the same arguments without harm.

    Each raises UnreachableError, RefusedError or VanishedError, and nothing else.
    """

    uri: str

    def find_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun | None:
        """Return the run created from this manifest below this parent, None if there is none."""

    def create_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun:
        """Create a run with the manifest's name, start time and tags."""

    def log_metrics(self, store_id: str, rows: Sequence[MetricRow]) -> None:
        """Add points; a point that is there already is not added again."""

    def log_params(self, store_id: str, params: Mapping[str, str]) -> None:
        """Set parameters, once each."""

    def log_dataset(self, store_id: str, dataset: Mapping[str, Any]) -> None:
        """Say which data the run used: name, digest, source, profile, context."""

    def log_artifact(self, store_id: str, file: Path, to: str) -> None:
        """Copy a file or a folder into the run's artifact folder `to`."""

    def set_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""

    def set_experiment_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of the experiment the run is in."""

    def describe_experiment(self, store_id: str, markdown: str) -> None:
        """Set the description of the experiment the run is in, unless it has one."""

    def set_status(self, store_id: str, status: Status, time_ms: int) -> None:
        """Say how the run ended and when, or that it is running again."""


@dataclass
class MemoryRun:
    """One run in a `MemoryStore`."""

    manifest: Manifest
    parent: str | None
    metrics: set[MetricRow] = field(default_factory=set)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    experiment_tags: dict[str, str] = field(default_factory=dict)
    datasets: list[Mapping[str, Any]] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    status: Status = "RUNNING"

    def curve(self, key: str) -> dict[int, float]:
        """Return step → value of one metric, in step order."""
        rows = sorted((row for row in self.metrics if row.key == key), key=lambda row: row.step)
        return {row.step: row.value for row in rows}


class MemoryStore:
    """A store without MLflow: for tests, and for reading a run as the uploader sees it."""

    def __init__(self, uri: str = "memory:") -> None:
        """Start empty."""
        self.uri = uri
        self.runs: dict[str, MemoryRun] = {}
        self.calls: list[str] = []
        """The verbs used so far, in order."""
        self.down_after: int | None = None
        """Number of calls after which the store stops answering; None for never."""
        self._ids = itertools.count()

    def find_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun | None:
        self._call("find_run")
        for store_id, run in self.runs.items():
            if run.manifest.run_id == manifest.run_id and run.parent == parent_store_id:
                return StoredRun(store_id, run.manifest.experiment)
        return None

    def create_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun:
        self._call("create_run")
        store_id = f"m{next(self._ids)}"
        self.runs[store_id] = MemoryRun(manifest, parent_store_id, tags=dict(manifest.tags))
        return StoredRun(store_id, manifest.experiment)

    def log_metrics(self, store_id: str, rows: Sequence[MetricRow]) -> None:
        self._run("log_metrics", store_id).metrics.update(rows)

    def log_params(self, store_id: str, params: Mapping[str, str]) -> None:
        known = self._run("log_params", store_id).params
        for key, value in params.items():
            if known.setdefault(key, value) != value:
                raise RefusedError(f"{key}: is {known[key]!r} already, cannot become {value!r}")

    def log_dataset(self, store_id: str, dataset: Mapping[str, Any]) -> None:
        datasets = self._run("log_dataset", store_id).datasets
        if dataset not in datasets:
            datasets.append(dataset)

    def log_artifact(self, store_id: str, file: Path, to: str) -> None:
        artifacts = self._run("log_artifact", store_id).artifacts
        files = [file] if file.is_file() else [p for p in sorted(file.rglob("*")) if p.is_file()]
        for path in files:
            artifacts[(Path(to) / path.relative_to(file.parent)).as_posix()] = path.read_bytes()

    def set_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        self._run("set_tags", store_id).tags.update(tags)

    def set_experiment_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        self._run("set_experiment_tags", store_id).experiment_tags.update(tags)

    def describe_experiment(self, store_id: str, markdown: str) -> None:
        tags = self._run("describe_experiment", store_id).experiment_tags
        tags.setdefault("mlflow.note.content", markdown)

    def set_status(self, store_id: str, status: Status, time_ms: int) -> None:
        self._run("set_status", store_id).status = status

    def _call(self, verb: str) -> None:
        if self.down_after is not None and len(self.calls) >= self.down_after:
            raise UnreachableError(f"{self.uri}: is down")
        self.calls.append(verb)

    def _run(self, verb: str, store_id: str) -> MemoryRun:
        self._call(verb)
        if store_id not in self.runs:
            raise VanishedError(f"{self.uri}: no run {store_id}")
        return self.runs[store_id]
