"""Run an experiment, or go on with one that was interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabexp import experiment as experiments
from stabexp.api.runs import (
    DRAIN_SECONDS,
    LOCK,
    broken_off,
    experiment_of,
    not_a_run,
    refuse_while_loading,
)
from stabexp.errors import StabexpError
from stabexp.records import RunResult, StepRecord
from stabexp.tracking import (
    DEFAULT_ROOT,
    RunDirectory,
    exclusive,
    find_run,
    local_tracking_uri,
    new_run_id,
    run_path,
    settled_uri,
)
from stabexp.tracking.uploader import start_uploader, upload_problem, wait_for_upload
from stabexp.tracking.web_view import runs_view_tag


def run(
    what: Path | str | Callable[..., Any],
    overrides: Sequence[str] = (),
    *,
    root: Path | str = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None = None,
    drain_seconds: float = DRAIN_SECONDS,
    **settings: Any,
) -> RunResult:
    """Train what an experiment file says, or a training function, recording what a bisect needs.

    `run("exp.yaml")`, `run("train.py:train", steps=400)` and `run(train, steps=400)` are the same
    thing. A function is taken from its file anew, as every replay does: what the caller put into
    the globals of its module does not reach it, so hand it over with `args`.

    Args:
        what: The experiment file, `path/to/file.py:function`, `package.module:function`, or a
            function that takes a `stabexp.Run`.
        overrides: "key.sub=value" settings that replace the file's.
        root: Where runs are kept.
        on_step: Called with every step's record, on the training thread.
        on_start: Called once the run has an id.
        drain_seconds: How long to wait at the end for MLflow to have received everything.
        settings: Keys of the experiment file: `steps=400, batch={"size": 8}`; `args` are the
            function's own arguments.

    Raises:
        ConfigError: If the file, the function or a setting is wrong; nothing was recorded then.
        TrainingError: If the training code raised; what was recorded until then is kept.
        TrackingError: If the run directory cannot be written, for example on a full disk.
    """
    refuse_while_loading("stabexp.run")
    given = experiments.given(what, overrides, settings)
    directory = _create(given.experiment, Path(root))
    with exclusive(directory.path / LOCK):
        directory.write_json(experiments.SOURCE, given.source())
        (directory.path / "experiment.yaml").write_text(given.text, "utf-8")
        result = _train(
            directory,
            given.experiment,
            base=given.base,
            on_step=on_step,
            on_start=on_start,
            resumed=False,
        )
    return _delivered(result, drain_seconds)


def resume(
    run_id: str,
    *,
    root: Path = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> RunResult:
    """Go on with a run that was interrupted, from its newest checkpoint, as if it never had been.

    Raises:
        StabexpError: If the run ended by itself, so that there is nothing to go on with.
        CheckpointError: If it has no usable checkpoint.
        BusyError: If it is still running.
    """
    directory = find_run(run_id, root)
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    if directory.status() == "FINISHED" or directory.divergence() is not None:
        raise StabexpError(
            f"run {directory.run_id}: has ended by itself; there is nothing to resume"
        )
    experiment, base = experiment_of(directory)
    with exclusive(directory.path / LOCK):
        directory.resume()
        result = _train(
            directory, experiment, base=base, on_step=on_step, on_start=on_start, resumed=True
        )
    return _delivered(result, drain_seconds)


def _train(
    directory: RunDirectory,
    experiment: experiments.Experiment,
    *,
    base: Path,
    on_step: Callable[[StepRecord], None] | None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None,
    resumed: bool,
) -> RunResult:
    uploader = start_uploader(directory.path)
    try:
        if on_start is not None:
            on_start(directory, experiment)
        from stabexp.training.recorded import train_recorded

        program = experiments.program(experiment, base=base)
        return train_recorded(directory, program, on_step=on_step, resumed=resumed)
    except BaseException as error:
        broken_off(directory, error)
        raise
    finally:
        uploader.poll()


def _create(experiment: experiments.Experiment, root: Path) -> RunDirectory:
    uri = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    run_id = new_run_id(experiment.name)
    directory = RunDirectory.create(
        run_path(run_id, root),
        run_id=run_id,
        kind="run",
        name=run_id,
        experiment=experiment.tracking.experiment,
        tracking_uri=settled_uri(uri) if uri else local_tracking_uri(root),
        params=experiments.flat(experiment),
        tags={"stabexp.role": "run", "stabexp.description": experiment.description},
    )
    directory.set_experiment_tags(dict([runs_view_tag(time_ms=time.time_ns() // 1_000_000)]))
    return directory


def _delivered(result: RunResult, seconds: float) -> RunResult:
    """Wait for MLflow to have received everything, and say whether it has, and why not."""
    delivered = wait_for_upload(result.directory, seconds)
    problem = "" if delivered else upload_problem(result.directory)
    notices = (*result.notices, *([problem] if problem else ()))
    return replace(result, delivered=delivered, notices=notices)
