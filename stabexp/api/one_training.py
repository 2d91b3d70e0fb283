"""Train one run directory to its end, from the start or from its newest checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stabexp import experiment as experiments
from stabexp.api.drawing import draw_layers
from stabexp.api.runs import ERROR, LOCK, broken_off, experiment_of, not_a_run
from stabexp.errors import StabexpError
from stabexp.notifications import start_notifier
from stabexp.records import RunResult, StepRecord
from stabexp.tracking import RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader

OnStep = Callable[[StepRecord], None] | None
OnStart = Callable[[RunDirectory, experiments.Experiment], None] | None


def planned_steps(directory: RunDirectory) -> int | None:
    """Return how many steps a run's training will make in all.

    A trainer that knows its own length tells it before its first step; None until then, and where
    nobody knows.
    """
    from stabexp.training.recorded import PLAN

    if not (directory.path / PLAN).exists():
        return None
    steps = directory.read_json(PLAN).get("steps")
    return steps if isinstance(steps, int) else None


def train(
    directory: RunDirectory,
    experiment: experiments.Experiment,
    *,
    base: Path,
    on_step: OnStep,
    on_start: OnStart,
    resumed: bool,
) -> RunResult:
    """Train, and record all of it; the caller holds the run's lock.

    Raises:
        TrainingError: If the training code raised; what was recorded until then is kept.
        CheckpointError: If it is to be resumed and has no usable checkpoint.
        TrackingError: If the directory cannot be written any more.
    """
    (directory.path / ERROR).unlink(missing_ok=True)  # an earlier life's
    uploader = start_uploader(directory.path)
    start_notifier(directory.path, experiment.on_event)
    try:
        if on_start is not None:
            on_start(directory, experiment)
        from stabexp.training.recorded import train_recorded

        program = experiments.program(experiment, base=base)
        return train_recorded(
            directory,
            program,
            on_step=on_step,
            resumed=resumed,
            on_end=lambda: draw_layers(directory),
        )
    except BaseException as error:
        broken_off(directory, error)
        raise
    finally:
        uploader.poll()


def go_on(
    run_id: str, *, root: Path, on_step: OnStep = None, on_start: OnStart = None
) -> tuple[RunResult, experiments.Experiment]:
    """Go on with a run that was interrupted, from its newest checkpoint.

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
        result = train(
            directory, experiment, base=base, on_step=on_step, on_start=on_start, resumed=True
        )
    return result, experiment
