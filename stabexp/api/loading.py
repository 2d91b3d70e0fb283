"""`load`: a run by its id, from its directory, or from an MLflow store where no directory is."""

from __future__ import annotations

from pathlib import Path

from stabexp.api.loaded import Loaded
from stabexp.api.loading_from_store import LoadedFromStore
from stabexp.api.runs import not_a_run
from stabexp.errors import RunNotFoundError, TrackingError
from stabexp.tracking import DEFAULT_ROOT, find_run
from stabexp.tracking.store_reader import store_of

__all__ = ["Loaded", "load"]


def load(run_id: str, *, root: Path | str = DEFAULT_ROOT) -> Loaded:
    """Return everything recorded of a run, finished or not.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept; or a folder with a local MLflow store alone, of which as much is
            loaded as it has.

    Raises:
        RunNotFoundError: If there is no such run.
        TrackingError: If what was recorded of it is damaged.
    """
    try:
        directory = find_run(run_id, root)
    except RunNotFoundError as error:
        return _from_store(run_id, Path(root), error)
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    return Loaded(directory)


def _from_store(run_id: str, root: Path, missing: RunNotFoundError) -> Loaded:
    """Return what the MLflow store in a folder has of a run; else why it was not found."""
    try:
        store = store_of(root)
        if store is None:
            raise missing
        return LoadedFromStore(store, store.find(run_id))
    except TrackingError:
        raise missing from None
    except RunNotFoundError as error:
        raise (error if not (root / "runs").exists() else missing) from None
