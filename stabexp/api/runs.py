"""What the API's calls share: a run's experiment, how it ended, whether MLflow has received it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from stabexp import experiment as experiments
from stabexp.errors import ConfigError, RunNotFoundError, TrackingError
from stabexp.loading import being_loaded
from stabexp.tracking import RunDirectory

DAMAGED = "damaged, or from another version; restore it from a copy"

ERROR = "error.json"
"""In a run directory: the error that ended the run; there when one did."""

LOCK = "run.lock"
"""In a run directory: held by the process that trains."""

DRAIN_SECONDS = 60.0
"""How long to wait, once the work is done, for MLflow to have received it."""


def refuse_while_loading(call: str) -> None:
    """Refuse a call at the top level of a file that is loaded to find a function in it.

    Raises:
        ConfigError: If that is where the call stands; otherwise it would call itself for ever.
    """
    if (loading := being_loaded()) is not None:
        raise ConfigError(
            f"{call} was called while {loading} is loaded, as it is to find the training function "
            'in it; put the call below the line: if __name__ == "__main__":'
        )


def broken_off(directory: RunDirectory, error: BaseException) -> None:
    """Record that an error ended this, as far as the disk takes it; the error is told anyway."""
    with suppress(TrackingError):
        if directory.status() == "RUNNING":
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                cause = error.__cause__ or error
                told = {"type": type(cause).__name__, "message": str(error)}
                directory.write_json(ERROR, told)
            directory.finish("KILLED" if interrupted else "FAILED")


def not_a_run(run_id: str, directory: RunDirectory) -> RunNotFoundError:
    kind = directory.kind
    while directory.kind != "run" and (parent := directory.parent) is not None:
        directory = parent
    return RunNotFoundError(f"{run_id}: is a {kind}, not a run; its run is {directory.run_id}")


def experiment_of(directory: RunDirectory) -> tuple[experiments.Experiment, Path]:
    """Return the experiment of a run, and the folder that its relative paths start from."""
    source = directory.read_json(experiments.SOURCE)
    if not isinstance(source, dict) or not {"name", "values", "base"} <= source.keys():
        raise TrackingError(f"{directory.path / experiments.SOURCE}: {DAMAGED}")
    return experiments.open_source(source)


def observed_loop(directory: RunDirectory) -> dict[str, Any]:
    """Return what a run's training function was seen to do; empty where nothing was recorded."""
    from stabexp.training.seen import LOOP  # imports torch

    if not (directory.path / LOOP).exists():
        return {}
    seen = directory.read_json(LOOP)
    if not isinstance(seen, dict):
        raise TrackingError(f"{directory.path / LOOP}: {DAMAGED}")
    return seen
