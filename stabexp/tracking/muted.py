"""Whatever a replay's own code tells MLflow goes nowhere.

A training function may log to MLflow itself. Its replays are the same function called dozens of
times, and they must neither write into the run of the first call nor leave runs behind. So a replay
has a store of its own in a folder that is thrown away: by environment variables, which also reach
what the function starts, and, once the function imports MLflow, by putting that store in the place
of every other. Then it makes no difference that the function names a server itself, nor, in the
calling process, that a run is active there. MLflow is not loaded for any of this.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_PREFIX = "MLFLOW_"
_OF_THE_USER = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME")


@contextmanager
def muted(*, active_run: bool = False) -> Iterator[None]:
    """Let everything that this thread tells MLflow end in a folder that is then removed.

    Args:
        active_run: Whether an MLflow run is active, as it was when the training was recorded.
    """
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="stabexp-muted-"))
        folder = Path(made) / "store"
        stack.enter_context(_environment(folder))

        def redirect() -> None:
            from stabexp.tracking.mlflow_nowhere import nowhere

            stack.enter_context(nowhere(folder, active_run=active_run))

        if "mlflow" in sys.modules:
            redirect()
        else:
            stack.enter_context(_on_import("mlflow", redirect))
        yield


def in_active_run() -> bool:
    """Say whether the caller has an MLflow run of its own open."""
    mlflow = sys.modules.get("mlflow")
    return mlflow is not None and mlflow.active_run() is not None


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    before = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
    for name in _OF_THE_USER:
        os.environ.pop(name, None)
    os.environ["MLFLOW_TRACKING_URI"] = os.environ["MLFLOW_REGISTRY_URI"] = folder.as_uri()
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the link would lead nowhere
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_PREFIX)]:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _on_import(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Call `action` as soon as a module has been imported, if it is in this block."""
    finder = _Finder(name, action)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.remove()


class _Finder(MetaPathFinder):
    """Finds one module where the others find it, and acts when it has been executed."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute, act = spec.loader.exec_module, self._action

            def exec_module(module: ModuleType) -> None:
                execute(module)
                act()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
