"""What a user calls a run: its id, its folder, one in MLflow, or another trainer's log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stabexp.errors import RunNotFoundError
from stabexp.tracking import RunDirectory, find_run, local_tracking_uri

if TYPE_CHECKING:
    from stabexp.diagnosis.log import Keep, Log

MLFLOW_ID = 32
"""Hexadecimal digits of an MLflow run id."""


def own_run(source: str | Path, root: Path) -> RunDirectory | None:
    """Return the run of ours that is meant, None when it is somebody else's."""
    path = Path(source)
    folder = path.parent if path.name == "steps.jsonl" else path
    if _exists(folder / "run.json"):
        return RunDirectory.open(folder)
    try:
        directory = find_run(str(source), root)
    except RunNotFoundError:
        return None
    # A file or folder that only begins like a run's id is what it is.
    return None if _exists(path) and directory.run_id != str(source) else directory


def foreign_log(source: str | Path, keep: Keep, *, tracking_uri: str | None, root: Path) -> Log:
    """Return the log of a run that is not ours.

    Args:
        source: A file, a folder, or an MLflow run id.
        keep: Which curves to keep.
        tracking_uri: Where MLflow keeps it; else the usual places.
        root: Where our runs are kept.

    Raises:
        RunNotFoundError: If there is neither a run nor a file of this name.
        ConfigError: If the file holds no log.
        TrackingError: If MLflow cannot be read.
    """
    from stabexp.diagnosis import read_log, read_mlflow_run

    if _exists(Path(source)):
        return read_log(Path(source), keep)
    return read_mlflow_run(str(source), _store_of(str(source), tracking_uri, root), keep)


def _exists(path: Path) -> bool:
    """Return whether there is such a file or folder; not every text can be a path."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _store_of(source: str, tracking_uri: str | None, root: Path) -> str:
    """Return the MLflow store to ask for a run.

    Raises:
        RunNotFoundError: If nothing says that `source` is a run in MLflow, or where.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    looks_like_one = len(source) == MLFLOW_ID and set(source) <= set("0123456789abcdef")
    if uri and looks_like_one:
        return uri
    if not looks_like_one:
        find = f"is neither a file or folder, nor a run in {root.absolute()}"
        raise RunNotFoundError(
            f"{source}: {find}, nor an MLflow run id ({MLFLOW_ID} hexadecimal digits)"
        )
    if (root / "mlflow.db").exists():
        return local_tracking_uri(root)
    if Path("mlflow.db").exists():
        return f"sqlite:///{Path('mlflow.db').absolute()}"
    if Path("mlruns").is_dir():
        return str(Path("mlruns").absolute())
    raise RunNotFoundError(
        f"run {source}: no MLflow store is known; name it with --tracking-uri or "
        "MLFLOW_TRACKING_URI"
    )
