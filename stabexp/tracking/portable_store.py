"""An MLflow database that can be opened from any folder, by anyone, without being changed.

MLflow writes the absolute path of every run's artifacts into its database. So a folder that was
moved, copied or cloned shows runs without artifacts. `mlflow-artifacts:` addresses have no such
path: a server resolves them against the folder it was told to serve.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stabexp.errors import TrackingError

DATABASE = "mlflow.db"
ARTIFACTS = "artifacts"

PORTABLE = "mlflow-artifacts:"
"""Begins the address of artifacts that any server finds in the folder it serves."""

_HOMES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


@contextmanager
def open_database(file: Path, *, writable: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database that exists, commit at the end when it is written to, and close it.

    Raises:
        TrackingError: If there is none, or it is not MLflow's.
    """
    address = f"{file.absolute().as_uri()}?mode={'rw' if writable else 'ro'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=20)) as database, database:
            yield database
    except sqlite3.Error as error:
        raise TrackingError(
            f"{file}: cannot be used as an MLflow database: {error}; restore it, or move it away "
            "and send everything anew with: stabexp sync"
        ) from error


def is_at_home(file: Path) -> bool:
    """Return whether the artifacts are where the database says, and it may be written to."""
    query = (
        "select distinct artifact_location from experiments "
        "where experiment_id in (select experiment_id from runs)"
    )
    with open_database(file) as database:
        homes = [location for (location,) in database.execute(query)]
    here = (file.absolute().parent / ARTIFACTS).as_uri() + "/"
    return os.access(file, os.W_OK) and all(home.startswith(here) for home in homes)


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it is at one moment, also while another process writes to it."""
    with open_database(source) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def relocate(file: Path, base: str = PORTABLE) -> None:
    """Say in a database that the artifacts are in another place.

    Args:
        file: The database.
        base: URI of the folder that holds one folder per experiment. `PORTABLE` stands for the
            folder a server serves; for MLflow's sake no folder's name may hold a "%" then.
    """
    with open_database(file, writable=True) as database:
        locations = database.execute("select artifact_location from experiments").fetchall()
        for (location,) in locations:
            if location.startswith(PORTABLE):
                continue
            place = f"{base}/{location.rstrip('/').rpartition('/')[2]}"
            for table, column in _HOMES:
                database.execute(
                    f"update {table} set {column} = :place || substr({column}, :length + 1) "
                    f"where {column} = :old or substr({column}, 1, :length + 1) = :old || '/'",
                    {"place": place, "old": location, "length": len(location)},
                )
