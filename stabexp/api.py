"""The Python interface: run an experiment, bisect a run, load what was recorded.

The only file that wires the parts together. The command line calls these functions and prints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.bisection.bisect_directory import bisect_directory
from stabexp.errors import (
    NotDivergedError,
    RunNotFoundError,
    StabexpError,
    TrackingError,
)
from stabexp.records import (
    Divergence,
    RunResult,
    StepRecord,
    TrialRecord,
    Verdict,
)
from stabexp.tracking import (
    DEFAULT_ROOT,
    RunDirectory,
    exclusive,
    find_run,
    local_tracking_uri,
    new_run_id,
    run_path,
)
from stabexp.tracking.uploader import start_uploader, wait_for_upload
from stabexp.tracking.web_view import runs_view_tag

if TYPE_CHECKING:
    import pandas as pd

    from stabexp.bisection.trials import Progress

DAMAGED = "damaged, or from another version; restore it from a copy"

LOCK = "run.lock"
"""In a run directory: held by the process that trains."""

DRAIN_SECONDS = 60.0
"""How long to wait, once the work is done, for MLflow to have received it."""


def run(
    path: Path | str,
    overrides: Sequence[str] = (),
    *,
    root: Path = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    on_start: Callable[[RunDirectory, experiments.Experiment], None] | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> RunResult:
    """Train what an experiment file says, recording everything a bisect needs.

    Args:
        path: The experiment file.
        overrides: "key.sub=value" settings that replace the file's.
        root: Where runs are kept.
        on_step: Called with every step's record, on the training thread.
        on_start: Called once the run has an id.
        drain_seconds: How long to wait at the end for MLflow to have received everything.

    Raises:
        ConfigError: If the file or an override is wrong; nothing was recorded then.
        TrainingError: If the training code raised; what was recorded until then is kept.
        TrackingError: If the run directory cannot be written, for example on a full disk.
    """
    path = Path(path)
    experiment, document = experiments.load(path, list(overrides))
    source = document.to_json() | {"base": str(path.parent.absolute())}
    directory = _create(experiment, root)
    with exclusive(directory.path / LOCK):
        directory.write_json(experiments.SOURCE, source)
        (directory.path / "experiment.yaml").write_text(path.read_text(encoding="utf-8"), "utf-8")
        result = _train(
            directory,
            experiment,
            base=path.parent,
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
        raise _not_a_run(run_id, directory)
    if directory.status() == "FINISHED" or directory.divergence() is not None:
        raise StabexpError(
            f"run {directory.run_id}: has ended by itself; there is nothing to resume"
        )
    experiment, base = _experiment(directory)
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
        _broken_off(directory, error)
        raise
    finally:
        uploader.poll()


def _broken_off(directory: RunDirectory, error: BaseException) -> None:
    """Record that an error ended this, as far as the disk takes it; the error is told anyway."""
    with suppress(TrackingError):
        if directory.status() == "RUNNING":
            directory.finish("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")


def _not_a_run(run_id: str, directory: RunDirectory) -> RunNotFoundError:
    kind = directory.kind
    while directory.kind != "run" and (parent := directory.parent) is not None:
        directory = parent
    return RunNotFoundError(f"{run_id}: is a {kind}, not a run; its run is {directory.run_id}")


def _create(experiment: experiments.Experiment, root: Path) -> RunDirectory:
    uri = experiment.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI")
    run_id = new_run_id(experiment.name)
    directory = RunDirectory.create(
        run_path(run_id, root),
        run_id=run_id,
        kind="run",
        name=run_id,
        experiment=experiment.tracking.experiment,
        tracking_uri=uri or local_tracking_uri(root),
        params=experiments.flat(experiment),
        tags={"stabexp.role": "run", "stabexp.description": experiment.description},
    )
    directory.set_experiment_tags(dict([runs_view_tag(time_ms=time.time_ns() // 1_000_000)]))
    return directory


def _delivered(result: RunResult, seconds: float) -> RunResult:
    """Wait for MLflow to have received everything, and say whether it has."""
    return replace(result, delivered=wait_for_upload(result.directory, seconds))


def bisect(
    run_id: str,
    *,
    root: Path = DEFAULT_ROOT,
    variables: Sequence[str] | None = None,
    workers: int | None = None,
    budget: int | None = None,
    again: bool = False,
    progress: Progress | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> Verdict:
    """Find out why a run diverged, by replaying it with one thing changed at a time.

    Stopped or killed, it goes on where it was when it is called again.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept.
        variables: What to change; None takes the experiment's.
        workers: Worker processes; None takes the experiment's.
        budget: Most steps to replay; None takes the experiment's.
        again: Start a new bisect though there is a verdict already.
        progress: Told what is being tried.
        drain_seconds: How long to wait at the end for MLflow to have received everything.

    Raises:
        RunNotFoundError: If there is no such run.
        NotDivergedError: If it did not diverge.
        CheckpointError: If no checkpoint before the divergence can be read.
        BusyError: If it is being bisected by another process.
    """
    run_directory = find_run(run_id, root)
    while run_directory.kind != "run" and (parent := run_directory.parent) is not None:
        run_directory = parent
    divergence = _divergence(run_directory)
    experiment, _ = _experiment(run_directory)
    chosen = tuple(dict.fromkeys(variables or experiment.bisect.variables))
    with exclusive(run_directory.path / "bisect.lock"):
        options = {
            "variables": list(chosen),
            "budget": budget if budget is not None else experiment.bisect.budget,
        }
        directory = bisect_directory(run_directory, options, again=again)
        if (directory.path / "verdict.json").exists() and directory.status() == "FINISHED":
            return directory.read_record(Verdict, "verdict.json")
        return _bisect(
            run_directory,
            directory,
            experiment,
            divergence=divergence,
            options=options,
            workers=workers or experiment.bisect.workers,
            progress=progress,
            drain_seconds=drain_seconds,
        )


def _divergence(directory: RunDirectory) -> Divergence:
    found = directory.divergence()
    if found is not None:
        return found
    how = {
        "FINISHED": "it trained to its end without diverging",
        "RUNNING": "it is still running, or was killed; `stabexp run --resume` goes on with it",
        "FAILED": "its training code raised an error before any divergence",
        "KILLED": "it was interrupted before any divergence; `stabexp run --resume` goes on",
    }[directory.status()]
    raise NotDivergedError(f"run {directory.run_id}: nothing to bisect: {how}")


def _experiment(directory: RunDirectory) -> tuple[experiments.Experiment, Path]:
    """Return the experiment of a run, and the folder that its relative paths start from."""
    source = directory.read_json(experiments.SOURCE)
    if not isinstance(source, dict) or not {"name", "values", "base"} <= source.keys():
        raise TrackingError(f"{directory.path / experiments.SOURCE}: {DAMAGED}")
    return experiments.open_source(source)


def _bisect(
    run_directory: RunDirectory,
    directory: RunDirectory,
    experiment: experiments.Experiment,
    *,
    divergence: Divergence,
    options: Mapping[str, Any],
    workers: int,
    progress: Progress | None,
    drain_seconds: float,
) -> Verdict:
    from stabexp.bisection.bisector import Bisector, Case
    from stabexp.bisection.optuna_study import DoseStudies
    from stabexp.bisection.trials import Progress, TrialRunner
    from stabexp.bisection.workers import WorkerPool
    from stabexp.reporting.publish import record_verdict

    uploader = start_uploader(run_directory.path)
    case = Case(
        run_id=run_directory.run_id,
        records=run_directory.read_steps(),
        divergence=divergence,
        setup=experiments.setup_of(experiment),
        dataset_size=run_directory.read_json("data.json")["dataset_size"],
        own_loop=experiment.train is not None,
        source=run_directory.read_json(experiments.SOURCE)["name"],
    )
    storage = directory.path / "optuna.db"
    try:
        with WorkerPool(
            workers,
            "stabexp.experiment:replay_job",
            {"directory": str(run_directory.path)},
            logs=directory.directory("logs"),
        ) as pool:
            runner = TrialRunner(
                directory,
                pool,
                params=experiments.flat(experiment),
                progress=progress or Progress(),
            )
            verdict = Bisector(
                case,
                runner,
                open_studies=lambda phase: DoseStudies(storage, bisect_id=phase),
                variables=options["variables"],
                budget=options["budget"],
            ).bisect()
        record_verdict(run_directory, directory, case.records, runner.records, verdict)
    except BaseException as error:
        _broken_off(directory, error)
        raise
    finally:
        uploader.poll()
    if not wait_for_upload(run_directory.path, drain_seconds) and progress is not None:
        uri = run_directory.manifest.tracking_uri
        progress.note(
            f"warning: {uri} has not received everything; the data is safe in "
            f"{run_directory.path}; send it later with stabexp sync"
        )
    return verdict


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Everything recorded of a run."""

    run_id: str
    directory: Path
    experiment: experiments.Experiment
    records: tuple[StepRecord, ...]
    divergence: Divergence | None
    trials: tuple[TrialRecord, ...]
    """Trials of the latest bisect, in the order in which they finished."""
    verdict: Verdict | None

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step."""
        from stabexp.tracking.frames import steps_frame

        return steps_frame(self.records)

    @property
    def trials_table(self) -> pd.DataFrame:
        """One row per trial."""
        from stabexp.tracking.frames import trials_frame

        return trials_frame(self.trials)


def load(run_id: str, *, root: Path = DEFAULT_ROOT) -> Loaded:
    """Return everything recorded of a run, finished or not.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    directory = find_run(run_id, root)
    if directory.kind != "run":
        raise _not_a_run(run_id, directory)
    experiment, _ = _experiment(directory)
    trials: tuple[TrialRecord, ...] = ()
    verdict = None
    bisects = [child for child in directory.children() if child.kind == "bisect"]
    if bisects:
        from stabexp.bisection.trials import read_trials

        trials = read_trials(bisects[-1])
        if (bisects[-1].path / "verdict.json").exists():
            verdict = bisects[-1].read_record(Verdict, "verdict.json")
    return Loaded(
        run_id=directory.run_id,
        directory=directory.path,
        experiment=experiment,
        records=tuple(directory.read_steps()),
        divergence=directory.divergence(),
        trials=trials,
        verdict=verdict,
    )


__all__ = ["Loaded", "bisect", "load", "resume", "run"]
