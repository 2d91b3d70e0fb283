"""Run an experiment, or go on with one that was interrupted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.api.bisecting import bisect
from stabexp.api.one_training import OnStart, OnStep, go_on, train
from stabexp.api.recovering import recover
from stabexp.api.runs import DRAIN_SECONDS, LOCK, refuse_while_loading
from stabexp.errors import TrainingError
from stabexp.notifications import read_targets, unset_names
from stabexp.records import RunResult, StepRecord
from stabexp.recovery.incident import is_out_of_memory
from stabexp.tracking import (
    DEFAULT_ROOT,
    RunDirectory,
    exclusive,
    local_tracking_uri,
    new_run_id,
    run_path,
    settled_uri,
)
from stabexp.tracking.uploader import upload_problem, wait_for_upload
from stabexp.tracking.web_view import EXPERIMENT_NOTE, runs_view_tag

if TYPE_CHECKING:
    from stabexp.bisection.trials import Progress


def run(
    what: Path | str | Callable[..., Any],
    overrides: Sequence[str] = (),
    *,
    root: Path | str = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None = None,
    progress: Progress | None = None,
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
        on_start: Called once the run has an id, and each run that recovers it.
        progress: Told what is being tried, where `on_divergence` asks for trials.
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
    told: dict[str, Any] = {"on_step": on_step, "on_start": on_start}
    answer = {**told, "root": Path(root), "progress": progress, "drain_seconds": drain_seconds}
    try:
        with exclusive(directory.path / LOCK):
            directory.write_json(experiments.SOURCE, given.source())
            (directory.path / "experiment.yaml").write_text(given.text, "utf-8")
            result = train(directory, given.experiment, base=given.base, resumed=False, **told)
    except TrainingError as error:
        if given.experiment.on_divergence != "recover" or not is_out_of_memory(str(error)):
            raise
        return _recovered(_failed(directory), **answer)
    return _answered(_delivered(result, drain_seconds), given.experiment, **answer)


def resume(
    run_id: str,
    *,
    root: Path | str = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None = None,
    progress: Progress | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> RunResult:
    """Go on with a run that was interrupted, from its newest checkpoint, as if it never had been.

    Raises:
        StabexpError: If the run ended by itself, so that there is nothing to go on with.
        CheckpointError: If it has no usable checkpoint.
        BusyError: If it is still running.
    """
    root = Path(root)
    told: dict[str, Any] = {"on_step": on_step, "on_start": on_start}
    result, experiment = go_on(run_id, root=root, **told)
    return _answered(
        _delivered(result, drain_seconds),
        experiment,
        root=root,
        progress=progress,
        drain_seconds=drain_seconds,
        **told,
    )


def _answered(
    result: RunResult,
    experiment: experiments.Experiment,
    *,
    root: Path,
    progress: Progress | None,
    drain_seconds: float,
    on_step: OnStep,
    on_start: OnStart,
) -> RunResult:
    """Do about a divergence what the experiment asks for under `on_divergence`."""
    if result.divergence is None or experiment.on_divergence == "stop":
        return result
    if experiment.on_divergence == "bisect":
        verdict = bisect(result.run_id, root=root, progress=progress, drain_seconds=drain_seconds)
        return replace(result, verdict=verdict)
    return _recovered(
        result,
        root=root,
        progress=progress,
        drain_seconds=drain_seconds,
        on_step=on_step,
        on_start=on_start,
    )


def _recovered(result: RunResult, **options: Any) -> RunResult:
    return replace(result, recovery=recover(result.run_id, **options))


def _failed(directory: RunDirectory) -> RunResult:
    """Return the result of a run whose memory ran out."""
    records = directory.read_steps()
    return RunResult(
        run_id=directory.run_id,
        directory=directory.path,
        status="failed",
        steps=records[-1].step + 1 if records else 0,
        final_loss=records[-1].loss if records else float("nan"),
        divergence=None,
        seconds=time.time() - directory.created,
        delivered=True,
        tracking_uri=directory.manifest.tracking_uri,
    )


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
        upload=experiment.tracking.upload,
        params=experiments.flat(experiment),
        tags={"stabexp.role": "run", "stabexp.description": experiment.description},
    )
    directory.set_experiment_tags(dict([runs_view_tag(time_ms=time.time_ns() // 1_000_000)]))
    directory.set_experiment_note(EXPERIMENT_NOTE)
    return directory


def _delivered(result: RunResult, seconds: float) -> RunResult:
    """Wait for MLflow to have received everything, and say whether it has, and why not."""
    delivered = wait_for_upload(result.directory, seconds)
    problem = "" if delivered else upload_problem(result.directory)
    notices = (*result.notices, *([problem] if problem else ()))
    if unset := unset_names(read_targets(result.directory)):
        names = " and ".join(unset)
        notices += (f"on_event: {names} not set here; set it, and send what is left: stabexp sync",)
    return replace(result, delivered=delivered, notices=notices)
