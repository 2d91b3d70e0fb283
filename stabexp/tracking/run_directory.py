"""The directory of one run, bisect or trial: all it recorded, in files that outlive the process.

What MLflow should show is appended to an outbox; an uploader sends it when it can. Nothing here
waits for a network.
"""

from __future__ import annotations

import getpass
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from stabexp.errors import RunNotFoundError, TrackingError
from stabexp.records import Divergence, StepRecord, from_json, to_json
from stabexp.tracking.journal import append_shared, read_lines
from stabexp.tracking.manifest import Kind, Manifest, Status, read_json, write_json
from stabexp.tracking.processes import identity
from stabexp.tracking.step_log import StepLog, read_steps, rewound_to

DIVERGENCE = "divergence.json"
"""What a detector found; there when the run diverged."""

EVENTS = "events.jsonl"
"""What stabilisers did and monitors noticed; there when anything was."""

NOTE_LIMIT = 8000
"""Characters MLflow keeps of a note."""

STORE_ID = "{mlflow.run_id}"
"""In a note, replaced by the MLflow run id at upload, so that a note can show artifacts."""
PARENT_ID = "{mlflow.parent_id}"
"""In a note, replaced by the MLflow run id of what this belongs to: a trial's bisect."""
TOP_ID = "{mlflow.top_id}"
"""In a note, replaced by the MLflow run id of the run that all of it is about."""
EXPERIMENT_ID = "{mlflow.experiment_id}"
"""In a note, replaced by the id of the MLflow experiment."""

_PLACE = r"\{mlflow\.\w+\}"
_CUT = "\n\n*Cut here: MLflow shows no longer notes. The report has the rest.*\n"


_R = TypeVar("_R")


class RunDirectory:
    """One run, bisect or trial on disk."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Use `create` or `open`."""
        self.path = path
        self.manifest = manifest
        self._steps: StepLog | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        run_id: str,
        kind: Kind,
        name: str,
        parent_path: Path | None = None,
        experiment: str,
        tracking_uri: str,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        upload: bool = True,
    ) -> RunDirectory:
        """Make a new run directory; this process counts as the one that records it.

        Raises:
            TrackingError: If there is one already, or it cannot be made.
        """
        path = path.absolute()
        manifest = Manifest(
            run_id=run_id,
            kind=kind,
            name=name,
            parent=None if parent_path is None else os.path.relpath(parent_path, path),
            experiment=experiment,
            tracking_uri=tracking_uri,
            upload=upload,
            created=time.time(),
            params={key: str(value) for key, value in (params or {}).items()},
            tags={key: str(value) for key, value in (tags or {}).items()},
            writer=identity(),
            user=_user(),
            script=sys.argv[0] if sys.argv else "",
            working_directory=os.getcwd(),
        )
        if (path / "run.json").exists():
            raise TrackingError(f"{path}: already holds a run; choose another id, or open it")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrackingError(f"{path}: cannot be made: {error.strerror}") from error
        write_json(path / "run.json", to_json(manifest))
        return cls(path, manifest)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run directory.

        Raises:
            RunNotFoundError: If there is none.
            TrackingError: If its manifest is damaged.
        """
        path = path.absolute()
        file = path / "run.json"
        if not file.exists():
            raise RunNotFoundError(f"{path}: holds no run (no run.json); check the path")
        try:
            return cls(path, from_json(Manifest, read_json(file)))
        except pydantic.ValidationError as error:
            fields = ", ".join(".".join(map(str, e["loc"])) or "?" for e in error.errors())
            raise TrackingError(
                f"{file}: damaged or from another version (wrong: {fields}); restore it from a copy"
            ) from error

    @property
    def run_id(self) -> str:
        """The local id, known before any server is."""
        return self.manifest.run_id

    @property
    def kind(self) -> Kind:
        """ "run", "bisect" or "trial"."""
        return self.manifest.kind

    @property
    def name(self) -> str:
        """What people see in lists."""
        return self.manifest.name

    @property
    def created(self) -> float:
        """Unix seconds."""
        return self.manifest.created

    @property
    def parent(self) -> RunDirectory | None:
        """The bisect of a trial, the run of a bisect."""
        if self.manifest.parent is None:
            return None
        return RunDirectory.open(Path(os.path.normpath(self.path / self.manifest.parent)))

    def children(self) -> list[RunDirectory]:
        """Return the bisects of a run, or the trials of a bisect, oldest first."""
        found = [RunDirectory.open(file.parent) for file in self.path.glob("*/*/run.json")]
        return sorted(found, key=lambda child: (child.created, child.run_id))

    def directory(self, name: str) -> Path:
        """Return the directory `name` inside this one, made when missing."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write_json(self, name: str, data: Any) -> Path:
        """Write a JSON file into the directory, whole or not at all, and return its path."""
        write_json(self.path / name, data)
        return self.path / name

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file in the directory."""
        return read_json(self.path / name)

    def read_record(self, kind: type[_R], name: str) -> _R:
        """Return a record of ours from a JSON file in the directory.

        Raises:
            TrackingError: If it is missing, damaged or of another version.
        """
        try:
            return from_json(kind, self.read_json(name))
        except pydantic.ValidationError as error:
            raise TrackingError(
                f"{self.path / name}: damaged, or from another version; restore it from a copy"
            ) from error

    def divergence(self) -> Divergence | None:
        """Return what a detector found in the run, None when it did not diverge.

        Raises:
            TrackingError: If the file is damaged or of another version.
        """
        if not (self.path / DIVERGENCE).exists():
            return None
        return self.read_record(Divergence, DIVERGENCE)

    def log_step(self, record: StepRecord) -> None:
        """Append a step; it survives the death of this process."""
        if self._steps is None:
            self._steps = StepLog(self.path / "steps.jsonl")
        self._steps.append(record)

    def rewind(self, step: int) -> None:
        """Go on from `step`: what an earlier life of this run recorded from there on is void."""
        if any(record.step >= step for record in self.read_steps()):
            self._steps = self._steps or StepLog(self.path / "steps.jsonl")
            self._steps.rewind(step)
        if any(event.get("step", 0) >= step for event in self.read_events()):
            self.log_event({"rewound_to": step})

    def log_event(self, event: Mapping[str, Any]) -> None:
        """Append something that happened: its "step", a sentence under "message", figures."""
        append_shared(self.path / EVENTS, _finite(event))

    def read_events(self) -> list[dict[str, Any]]:
        """Return what happened, in order; of steps that were run twice, the last time."""
        found: list[dict[str, Any]] = []
        for line in read_lines(self.path / EVENTS):
            start = rewound_to(line.value)
            if start is None:
                found.append(dict(line.value))
            else:
                found = [event for event in found if event.get("step", 0) < start]
        return found

    def read_steps(self) -> list[StepRecord]:
        """Return all steps that count, in order."""
        return read_steps(self.path / "steps.jsonl")

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags; a later value replaces an earlier one."""
        self._post("tags", tags={key: str(value) for key, value in tags.items()})

    def set_experiment_tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags of the experiment this run is in."""
        self._post("experiment_tags", tags={key: str(value) for key, value in tags.items()})

    def set_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Set summary figures; those that are NaN or ±Inf are left out, MLflow cannot show them."""
        finite = {key: float(value) for key, value in metrics.items() if math.isfinite(value)}
        self._post("metrics", metrics=finite, step=step)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Set parameters; MLflow keeps the first value of each."""
        self._post("params", params={key: str(value) for key, value in params.items()})

    def log_dataset(
        self,
        *,
        name: str,
        digest: str,
        source: str,
        profile: Mapping[str, Any] | None = None,
        context: str = "training",
    ) -> None:
        """Say which data the run used."""
        self._post(
            "dataset",
            name=name,
            digest=digest,
            source=source,
            profile=dict(profile or {}),
            context=context,
        )

    def add_artifact(self, file: Path | str, to: str = "") -> None:
        """Upload a file or folder of this directory, as it is at upload time, into the folder `to`.

        Raises:
            TrackingError: If it is missing or outside the directory.
        """
        home = Path(os.path.normpath(self.path))
        path = Path(os.path.normpath(self.path / file))
        if not path.is_relative_to(home):
            raise TrackingError(
                f"{path}: outside the run directory {self.path}; copy it there first"
            )
        if not path.exists():
            raise TrackingError(f"{path}: no such file; write it before adding it")
        self._post("artifact", file=path.relative_to(home).as_posix(), to=to)

    def set_note(self, markdown: str) -> None:
        """Set the description MLflow shows on top of the run's page, cut to `NOTE_LIMIT`."""
        self._post("note", markdown=_fit(markdown))

    def set_experiment_note(self, markdown: str) -> None:
        """Set the description of the experiment this run is in, unless it has one already."""
        self._post("experiment_note", markdown=markdown)

    def save_view(self, name: str) -> None:
        """Give the experiment's "Views" menu entries that compare this bisect's trials."""
        self._post("view", name=name)

    def finish(self, status: Status) -> None:
        """Close the step log and record how the run ended; the last thing to call."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._post("status", status=status, durable=True)

    def resume(self) -> None:
        """Count as running again, recorded by this process."""
        fields = to_json(self.manifest) | {"writer": identity()}
        self.manifest = from_json(Manifest, fields)
        write_json(self.path / "run.json", fields)
        self._post("status", status="RUNNING", durable=True)

    def status(self) -> Status:
        """Return how the run ended, "RUNNING" when nothing says so."""
        status: Status = "RUNNING"
        for line in read_lines(self.path / "outbox.jsonl"):
            if line.value.get("op") == "status":
                status = line.value["status"]
        return status

    def _post(self, operation: str, *, durable: bool = False, **arguments: Any) -> None:
        line = {"op": operation, "time": time.time_ns() // 1_000_000, **arguments}
        append_shared(self.path / "outbox.jsonl", line, durable=durable)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _finite(value: Any) -> Any:
    """Return JSON-ready values with NaN and ±Inf as text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _fit(markdown: str) -> str:
    places = re.findall(_PLACE, markdown)
    text = re.sub(_PLACE, "\0" * 32, markdown)
    if len(text) <= NOTE_LIMIT:
        return markdown
    kept = text[: NOTE_LIMIT - len(_CUT)]
    kept = kept[: kept.rfind("\n")] if "\n" in kept else kept
    for place in places:
        kept = kept.replace("\0" * 32, place, 1)
    return kept.rstrip("\0") + _CUT
