"""A new MLflow database appears whole, and nobody's half-made one is touched.

MLflow makes its tables one after another, and cannot do so in two processes at once: the slower one
raises. A training that logs to MLflow itself may open the same new store in the moment in which we
do. So ours is made under another name and then linked to the right one, which fails if somebody was
faster; and while somebody else is at it, we wait.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

PATIENCE = 60.0
"""Seconds without a change after which nobody is taken to be making a database any more."""

_POLL = 0.1


def ensure_whole(file: Path, make: Callable[[Path], None], *, patience: float = PATIENCE) -> None:
    """Return once the database is there and can be opened by MLflow.

    Args:
        file: Where it belongs; its folder is made.
        make: Makes a whole database at the path it is given.
        patience: Seconds without a change after which a half-made one is left as it is.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        new = file.with_name(f".{file.name}.{os.getpid()}.new")
        _remove(new)
        try:
            make(new)
            _put(new, file)
        finally:
            _remove(new)
    while not _is_whole(file) and time.time() - _changed(file) < patience:
        time.sleep(_POLL)


def _put(new: Path, file: Path) -> None:
    """Give a file its name unless there is one of that name."""
    try:
        os.link(new, file)
    except FileExistsError:
        return
    except OSError:  # no hard links on this disk; then the moment in between has to do
        if not file.exists():
            os.rename(new, file)


def _is_whole(file: Path) -> bool:
    """Return whether MLflow has put in what it puts in last: its first experiment."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute("select 1 from experiments limit 1").fetchone() is not None
    except sqlite3.Error:
        return False


def _changed(file: Path) -> float:
    """Return when the database or its journal was last written to; 0 when it is not there."""
    times = [0.0]
    for path in (file, file.with_name(f"{file.name}-journal"), file.with_name(f"{file.name}-wal")):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def _remove(new: Path) -> None:
    for path in (new, new.with_name(f"{new.name}-journal")):
        path.unlink(missing_ok=True)
