"""MLflow as a store: explicit run ids only, never MLflow's notion of an active run.

The uploader process, `stabexp sync`, and `stabexp diagnose` of an MLflow run are all that load it.
The only other module that imports mlflow is `mlflow_nowhere`, once a replay's code has done so.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.git_context import GitRunContext
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.git_utils import get_git_branch, get_git_commit, get_git_repo_url

from stabexp.tracking.credentials import denied
from stabexp.tracking.manifest import Manifest, Status
from stabexp.tracking.new_database import ensure_whole
from stabexp.tracking.store import (
    DeniedError,
    MetricRow,
    ReadRun,
    RefusedError,
    StoredRun,
    UnreachableError,
    VanishedError,
)

RUN_ID_TAG = "stabexp.run_id"

_BATCH = 1000
_NOTE = "mlflow.note.content"
_KEY_LIMIT = 250
_TAG_LIMIT = 8000
_PARAM_LIMIT = 6000
_DIGEST_LIMIT = 36

_REFUSALS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "MALFORMED_REQUEST",
    "NOT_IMPLEMENTED",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_CONFLICT",
}

_DENIALS = {"UNAUTHENTICATED": False, "CUSTOMER_UNAUTHORIZED": False, "PERMISSION_DENIED": True}
"""Error code → whether the server knows who asks."""

_T = TypeVar("_T")


class MlflowStore:
    """A tracking server, or a database file opened directly."""

    def __init__(self, tracking_uri: str) -> None:
        """Open the store; a database is made on first use, a server is not asked yet."""
        self.uri = tracking_uri
        self._experiments: dict[str, str] = {}
        if (file := _database_file(tracking_uri)) is not None:
            self._ask(lambda: ensure_whole(file, _make_database))
        self._client = self._ask(lambda: mlflow.MlflowClient(tracking_uri))

    def find_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun | None:
        experiment = self._experiment(manifest.experiment)
        wanted = f"tags.`{RUN_ID_TAG}` = '{manifest.run_id}'"
        if parent_store_id is not None:
            wanted += f" AND tags.`mlflow.parentRunId` = '{parent_store_id}'"
        runs = self._ask(lambda: self._client.search_runs([experiment], wanted, max_results=1))
        return StoredRun(runs[0].info.run_id, experiment) if runs else None

    def create_run(self, manifest: Manifest, parent_store_id: str | None) -> StoredRun:
        experiment = self._experiment(manifest.experiment)
        tags = _origin(manifest) | _texts(manifest.tags, _TAG_LIMIT)
        tags |= {RUN_ID_TAG: manifest.run_id, "stabexp.kind": manifest.kind}
        if parent_store_id is not None:
            tags["mlflow.parentRunId"] = parent_store_id
        run = self._ask(
            lambda: self._client.create_run(
                experiment,
                start_time=int(manifest.created * 1000),
                tags=tags,
                run_name=manifest.name[:_KEY_LIMIT],
            )
        )
        return StoredRun(run.info.run_id, experiment)

    def log_metrics(self, store_id: str, rows: Sequence[MetricRow]) -> None:
        metrics = [Metric(_key(row.key), row.value, row.timestamp_ms, row.step) for row in rows]
        for start in range(0, len(metrics), _BATCH):
            batch = metrics[start : start + _BATCH]
            self._ask(lambda batch=batch: self._client.log_batch(store_id, metrics=batch))  # type: ignore[misc]

    def log_params(self, store_id: str, params: Mapping[str, str]) -> None:
        entries = [Param(key, value) for key, value in _texts(params, _PARAM_LIMIT).items()]
        if entries:
            self._ask(lambda: self._client.log_batch(store_id, params=entries))

    def log_dataset(self, store_id: str, dataset: Mapping[str, Any]) -> None:
        source = dataset["source"]
        remote = source.startswith(("http://", "https://"))
        entity = Dataset(
            name=dataset["name"],
            digest=dataset["digest"][:_DIGEST_LIMIT],
            source_type="http" if remote else "local",
            source=json.dumps({"url" if remote else "uri": source}),
            profile=json.dumps(dataset["profile"]) if dataset["profile"] else None,
        )
        tag = InputTag("mlflow.data.context", dataset["context"])
        self._ask(lambda: self._client.log_inputs(store_id, [DatasetInput(entity, [tag])]))

    def log_artifact(self, store_id: str, file: Path, to: str) -> None:
        self._ask(lambda: self._client.log_artifact(store_id, str(file), to or None))

    def set_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        entries = [RunTag(key, value) for key, value in _texts(tags, _TAG_LIMIT).items()]
        if entries:
            self._ask(lambda: self._client.log_batch(store_id, tags=entries))

    def set_experiment_tags(self, store_id: str, tags: Mapping[str, str]) -> None:
        run = self._ask(lambda: self._client.get_run(store_id))
        for key, value in tags.items():
            self._ask(
                lambda key=key, value=value: self._client.set_experiment_tag(  # type: ignore[misc]
                    run.info.experiment_id, key, value
                )
            )

    def describe_experiment(self, store_id: str, markdown: str) -> None:
        run = self._ask(lambda: self._client.get_run(store_id))
        found = self._ask(lambda: self._client.get_experiment(run.info.experiment_id))
        if not found.tags.get(_NOTE):
            self._ask(
                lambda: self._client.set_experiment_tag(run.info.experiment_id, _NOTE, markdown)
            )

    def set_status(self, store_id: str, status: Status, time_ms: int) -> None:
        if status == "RUNNING":
            self._ask(lambda: self._client.update_run(store_id, status=status))
        else:
            self._ask(lambda: self._client.set_terminated(store_id, status, end_time=time_ms))

    def read_run(self, store_id: str, keep: Callable[[str], bool]) -> ReadRun:
        """Return a run that anybody logged, with the curves whose names are to be kept."""
        run = self._ask(lambda: self._client.get_run(store_id))
        curves: dict[str, tuple[tuple[int, float], ...]] = {}
        others = []
        for key in run.data.metrics:
            if not keep(key):
                others.append(key)
                continue
            history = self._ask(
                lambda key=key: self._client.get_metric_history(store_id, key)  # type: ignore[misc]
            )
            # In the order written; Python's sort leaves points of the same moment as they are.
            history = sorted(history, key=lambda metric: metric.timestamp)
            curves[key] = tuple((int(m.step), _as_logged(m.value)) for m in history)
        return ReadRun(
            run.info.run_name or "",
            curves,
            tuple(others),
            dict(run.data.params),
            dict(run.data.tags),
        )

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            found = self._ask(lambda: self._client.get_experiment_by_name(name))
            if found is None:
                try:
                    location = _artifact_location(self.uri, name)
                    experiment: str = self._ask(
                        lambda: self._client.create_experiment(name, artifact_location=location)
                    )
                except RefusedError:
                    # Another uploader was faster.
                    found = self._ask(lambda: self._client.get_experiment_by_name(name))
                    if found is None:
                        raise
            if found is not None:
                experiment = found.experiment_id
                if found.lifecycle_stage != "active":
                    raise RefusedError(
                        f"{self.uri}: experiment {name!r} was deleted; restore it "
                        f"(mlflow experiments restore -x {experiment}) or name another"
                    )
            self._experiments[name] = experiment
        return self._experiments[name]

    def _ask(self, request: Callable[[], _T]) -> _T:
        """Return what MLflow answers; its many errors become three: later, never, gone."""
        try:
            return request()
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                self._experiments.clear()
                raise VanishedError(f"{self.uri}: {error}") from error
            if error.error_code in _REFUSALS:
                raise RefusedError(f"{self.uri}: {error}") from error
            if error.error_code in _DENIALS:
                raise self._denied(known=_DENIALS[error.error_code]) from error
            raise UnreachableError(f"{self.uri}: {error}") from error
        except Exception as error:
            # Database drivers and HTTP libraries raise their own: a full disk, a lock, a cut line.
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in {401, 403}:
                raise self._denied(known=status == 403) from error
            raise UnreachableError(f"{self.uri}: {error}") from error

    def _denied(self, *, known: bool) -> DeniedError:
        return DeniedError(denied(self.uri, os.environ, known=known))


def _as_logged(value: float) -> float:
    """Return ±Inf where a database holds the largest number that there is in its place."""
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else float(value)


def _database_file(uri: str) -> Path | None:
    prefix = "sqlite:///"
    path = uri.removeprefix(prefix).partition("?")[0]
    return Path(path) if uri.startswith(prefix) and path and not path.startswith("file:") else None


def _make_database(file: Path) -> None:
    """Make a new database with all of MLflow's tables."""
    mlflow.MlflowClient(f"sqlite:///{file.absolute()}").search_experiments(max_results=1)


def _artifact_location(uri: str, experiment: str) -> str | None:
    """Return a folder next to a database file; a server decides for itself."""
    file = _database_file(uri)
    if file is None:
        return None
    return (file.absolute().parent / "artifacts" / quote(experiment, safe="")).as_uri()


def _origin(manifest: Manifest) -> dict[str, str]:
    """Return who started which program from which commit: the run's, not the uploader's."""
    tags = dict(resolve_tags(ignore=[GitRunContext]))  # type: ignore[list-item]
    found = {
        "mlflow.user": manifest.user,
        "mlflow.source.name": manifest.script,
        "mlflow.source.git.commit": get_git_commit(manifest.working_directory),
        "mlflow.source.git.branch": get_git_branch(manifest.working_directory),
        "mlflow.source.git.repoURL": get_git_repo_url(manifest.working_directory),
    }
    return tags | {key: value for key, value in found.items() if value}


def _key(name: str) -> str:
    """Return a name MLflow accepts as a key."""
    kept = re.sub(r"[^/\w.\- ]", "_", name)
    kept = re.sub(r"/+", "/", kept).strip("/")[:_KEY_LIMIT].strip("/")
    return re.sub(r"(^|/)\.{1,2}(?=/|$)", r"\1_", kept) or "_"


def _texts(values: Mapping[str, str], limit: int) -> dict[str, str]:
    return {
        _key(key): value if len(value) <= limit else value[: limit - 1] + "…"
        for key, value in values.items()
    }
