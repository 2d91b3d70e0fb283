"""A place in which everything that is told to MLflow ends, whichever store was meant.

Imported only where the user's own code has loaded MLflow already. It reaches below MLflow's public
names, which offer no store in place of every other; tried with MLflow 3.17.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.store.model_registry.file_store import FileStore as RegistryFileStore
from mlflow.store.tracking.file_store import FileStore
from mlflow.tracking import fluent as mlflow_fluent
from mlflow.tracking._model_registry import utils as mlflow_models
from mlflow.tracking._tracking_service import utils as mlflow_tracking

# Without types in MLflow.
fluent: Any = mlflow_fluent
models: Any = mlflow_models
tracking: Any = mlflow_tracking
_Registry: Any = RegistryFileStore


class NowhereStore(FileStore):
    """A folder that takes whatever it is told, also about runs it has never heard of."""

    def __init__(self, folder: Path) -> None:
        """Start empty."""
        super().__init__(folder.as_uri())  # type: ignore[no-untyped-call]
        self._stand_ins: dict[str, str] = {}

    def _get_run_info(self, run_uuid: str) -> Any:
        """Return a run's facts; a run of another store is stood in for by one of this."""
        known: Any = super()
        with suppress(MlflowException):
            return known._get_run_info(run_uuid)
        if run_uuid not in self._stand_ins:
            run = known.create_run(None, user_id="", start_time=0, tags=[], run_name=run_uuid)
            self._stand_ins[run_uuid] = run.info.run_id
        return known._get_run_info(self._stand_ins[run_uuid])

    def _get_experiment(self, experiment_id: str, *args: Any, **kwargs: Any) -> Any:
        """Return an experiment; one of another store is made here with the same id."""
        known: Any = super()
        with suppress(MlflowException):
            return known._get_experiment(experiment_id, *args, **kwargs)
        known._create_experiment_with_id(f"experiment {experiment_id}", experiment_id, None, None)
        return known._get_experiment(experiment_id, *args, **kwargs)


@contextmanager
def nowhere(folder: Path, *, active_run: bool) -> Iterator[None]:
    """Let what this thread, and what it starts, tells MLflow end in a folder, whatever it names.

    The calling process may have a run of its own open, a thread that records its machine, and a
    server set: all of that is as it was afterwards.

    Args:
        folder: Where to put it; made here.
        active_run: Whether there is an active run inside.
    """
    store = NowhereStore(folder)
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    registries = (
        (tracking._tracking_store_registry, store),
        (models._get_store_registry(), _Registry(folder.as_uri())),
    )
    threads = (fluent._active_run_stack, fluent._last_active_run_id, fluent._last_logged_model_id)
    held = [(variable, variable.get()) for variable in threads]
    names = (
        (tracking, "_tracking_uri"),
        (tracking, "_artifact_repos_cache"),
        (models, "_registry_uri"),
        (fluent, "_active_experiment_id"),
    )
    before = [(module, name, getattr(module, name)) for module, name in names]
    patched = [(registry, vars(registry).get("get_store")) for registry, _ in registries]
    for registry, other in registries:
        registry.get_store = _for_this_thread(registry.get_store, other, others)
    for variable in threads:
        variable.set(variable.default_factory())
    tracking._artifact_repos_cache = OrderedDict()
    fluent._active_experiment_id = None
    try:
        if active_run:
            mlflow.start_run()
        yield
    finally:
        with suppress(Exception):  # the user's code may have damaged it
            while mlflow.active_run() is not None:
                mlflow.end_run()
        for registry, own in patched:
            del registry.get_store  # the class's own is in force again
            if own is not None:
                registry.get_store = own
        for variable, value in held:
            variable.set(value)
        for module, name, value in before:
            setattr(module, name, value)


def _for_this_thread(get_store: Callable[..., Any], store: Any, others: set[int | None]) -> Any:
    """Return what gives `store` to all but threads that were there before."""

    def get(*args: Any, **kwargs: Any) -> Any:
        return get_store(*args, **kwargs) if threading.get_ident() in others else store

    return get
