"""Which runs there are below a root directory, and which one a user means."""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stabexp.errors import RunNotFoundError, TrackingError
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.upload_state import read_uploads

DEFAULT_ROOT = Path("stabexp_runs")
"""Where runs are kept unless told otherwise, relative to the working directory."""

RECOVERED = "-recovery-"
"""In the id of a run that goes on from another: the other's id comes before it, a number after."""


def new_run_id(name: str) -> str:
    """Return a fresh local id: the name as a file name, and 6 hexadecimal digits."""
    slug = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")[:60] or "run"
    return f"{slug}-{secrets.token_hex(3)}"


def run_path(run_id: str, root: Path = DEFAULT_ROOT) -> Path:
    """Return where the run with this local id is kept."""
    return root / "runs" / run_id


def local_tracking_uri(root: Path = DEFAULT_ROOT) -> str:
    """Return the URI of the MLflow store kept next to the runs."""
    return f"sqlite:///{(root / 'mlflow.db').absolute()}"


def settled_uri(uri: str) -> str:
    """Return the URI of a store so that it means the same one from any working directory."""
    prefix = "sqlite:///"
    path, mark, query = uri.removeprefix(prefix).partition("?")
    if not uri.startswith(prefix) or not path or path.startswith((":memory:", "file:")):
        return uri
    return f"{prefix}{Path(path).absolute()}{mark}{query}"


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunDirectory]:
    """Return the runs below a root, oldest first, but for those whose manifest is unreadable."""
    runs = []
    for file in (root / "runs").glob("*/run.json"):
        with suppress(TrackingError, RunNotFoundError):
            runs.append(RunDirectory.open(file.parent))
    return sorted(runs, key=lambda run: (run.created, run.run_id))


def find_run(run_id: str, root: Path | str = DEFAULT_ROOT) -> RunDirectory:
    """Return the run with this local id, or whose id begins so, or which MLflow knows by this id.

    Raises:
        RunNotFoundError: If there is none, or more than one.
        TrackingError: If its manifest is damaged.
    """
    root = Path(root)
    names = sorted(file.parent.name for file in (root / "runs").glob("*/run.json"))
    if run_id in names:
        return RunDirectory.open(run_path(run_id, root))
    matches = [name for name in names if run_id and name.startswith(run_id)]
    if len(matches) > 1:  # a run and those that recovered it begin alike: it is the run
        matches = [name for name in matches if RECOVERED not in name] or matches
    if len(matches) == 1:
        return RunDirectory.open(run_path(matches[0], root))
    if matches:
        raise RunNotFoundError(
            f"run {run_id}: {len(matches)} runs begin so: {', '.join(matches[:8])}; "
            "give more of the id"
        )
    for directory in _all_directories(root):
        if any(upload.store_id == run_id for upload in read_uploads(directory.path).values()):
            return directory
    raise RunNotFoundError(f"run {run_id}: not found in {root.absolute()}; {_hint(run_id, names)}")


def _all_directories(root: Path) -> Iterator[RunDirectory]:
    """Yield every run, bisect and trial below a root."""
    waiting = list_runs(root)
    while waiting:
        directory = waiting.pop()
        yield directory
        with suppress(TrackingError):
            waiting += directory.children()


def _hint(run_id: str, names: list[str]) -> str:
    near = difflib.get_close_matches(run_id, names, n=3)
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    if names:
        return f"the latest there are {', '.join(names[-3:])}"
    return "it holds no runs yet. Is it the right directory?"
