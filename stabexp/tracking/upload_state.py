"""How far the upload of a run directory got: upload.json, one entry per store.

It may be lost or old: what was sent twice has the same time stamps, and MLflow drops duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pydantic

from stabexp.errors import TrackingError
from stabexp.records import from_json, to_json
from stabexp.tracking.manifest import read_json, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What one store has of one run directory; positions are bytes in the files."""

    store_id: str | None = None
    """The run's id in the store, None until it was created there."""
    experiment_id: str = ""
    steps: int = 0
    """Everything before this position in steps.jsonl is sent, or was left out on purpose."""
    window: int = 0
    """Where to start reading in order to know the steps just before `steps` again."""
    tail: int = -1
    """The position `steps` had when the steps left out at the end were sent after all."""
    outbox: int = 0
    clipped: bool = False
    """Whether any gradient was clipped so far."""
    problem: str = ""
    """Why the store did not let us in when it was last tried; empty when it did."""


def read_uploads(path: Path) -> dict[str, Upload]:
    """Return the state per store URI; a missing or damaged file says that nothing was sent."""
    try:
        content = read_json(path / "upload.json")
        return {uri: from_json(Upload, state) for uri, state in content.items()}
    except (TrackingError, pydantic.ValidationError, AttributeError):
        return {}


def read_upload(path: Path, uri: str) -> Upload:
    """Return the state for one store."""
    return read_uploads(path).get(uri, Upload())


def write_upload(path: Path, uri: str, state: Upload) -> None:
    """Record how far the upload to one store got."""
    states = read_uploads(path) | {uri: state}
    write_json(path / "upload.json", {key: to_json(value) for key, value in states.items()})


def write_problem(path: Path, uri: str, problem: str) -> None:
    """Record why a store does not let us in, or that nothing is known against it any more."""
    state = read_upload(path, uri)
    if state.problem != problem:
        write_upload(path, uri, replace(state, problem=problem))
