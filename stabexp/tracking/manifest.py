"""What a run directory says about itself: run.json, written once, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stabexp.errors import TrackingError

Kind = Literal["run", "bisect", "trial"]
Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is known of a run when it starts."""

    run_id: str
    kind: Kind
    name: str
    """What people see in lists."""
    parent: str | None = None
    """The parent's directory, relative to this one."""
    experiment: str
    tracking_uri: str
    upload: bool = True
    """Whether it is sent there by itself; `stabexp sync` with its id sends it in any case."""
    created: float
    """Unix seconds."""
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    writer: str = ""
    """Identity of the process that records; see `processes.identity`."""
    user: str = ""
    script: str = ""
    """The program that was started."""
    working_directory: str = ""
    version: int = 1
    """Of the layout of a run directory."""


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file so that a reader finds the old content or the new, also after a power cut.

    Raises:
        TrackingError: If it cannot be written; the old content is still there then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrackingError(
            f"{path}: cannot be written: {error.strerror or error}; "
            "free space or fix the permissions there"
        ) from error
    except ValueError:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        TrackingError: If it is missing or not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise TrackingError(f"{path}: no such file; was the run directory copied whole?") from None
    except OSError as error:
        raise TrackingError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrackingError(f"{path}: not JSON: {error}; restore it from a copy") from error
