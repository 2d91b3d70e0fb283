"""Find out why a run diverged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import experiment as experiments
from stabexp.api.drawing import draw_layers
from stabexp.api.runs import (
    DRAIN_SECONDS,
    broken_off,
    experiment_of,
    not_a_run,
    observed_loop,
    refuse_while_loading,
)
from stabexp.api.sample_views import keep_samples
from stabexp.bisection.bisect_directory import bisect_directory
from stabexp.bisection.budget import Budget
from stabexp.bisection.facts import undiverged
from stabexp.errors import NotDivergedError, StabexpError
from stabexp.notifications import start_notifier
from stabexp.records import Divergence, Verdict
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader, upload_problem, wait_for_upload

if TYPE_CHECKING:
    from stabexp.bisection.trials import Progress


def bisect(
    run_id: str,
    *,
    root: Path | str = DEFAULT_ROOT,
    variables: Sequence[str] | None = None,
    workers: int | None = None,
    budget: int | str | None = None,
    good: int | None = None,
    bad: int | None = None,
    skip: Sequence[str] = (),
    seeds: int | None = None,
    layers: bool = False,
    thorough: bool = False,
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
        workers: Worker processes; None takes the experiment's, 0 replays in this process.
        budget: Most steps to replay (2000) or time to take ("30m"); None takes the experiment's.
        good: The checkpoint to start from; None takes the last good one.
        bad: The step to take as the one at which the divergence was detected.
        skip: Checkpoints and ranges of steps never to start from: "100-150".
        seeds: In how many further orders of the data a cure must hold; None takes the experiment's.
        layers: Find the modules that must stay in float32, where half precision is the cause.
        thorough: Try every variable though the cause is found, to show what else hides the symptom.
        again: Start a new bisect though there is a verdict already.
        progress: Told what is being tried.
        drain_seconds: How long to wait at the end for MLflow to have received everything.

    Raises:
        RunNotFoundError: If there is no such run.
        NotDivergedError: If it did not diverge.
        CheckpointError: If no checkpoint before the divergence can be read.
        BusyError: If it is being bisected by another process.
        ConfigError: If a wish cannot be fulfilled.
    """
    refuse_while_loading("stabexp.bisect")
    run_directory = find_run(run_id, root)
    while run_directory.kind != "run" and (parent := run_directory.parent) is not None:
        run_directory = parent
    divergence = _divergence(run_directory)
    experiment, _ = experiment_of(run_directory)
    chosen = tuple(dict.fromkeys(variables or experiment.bisect.variables))
    with exclusive(run_directory.path / "bisect.lock"):
        limit = budget if budget is not None else experiment.bisect.budget
        Budget.parse(limit)
        options = {
            "variables": list(chosen),
            "budget": limit,
            "good": good,
            "bad": bad,
            "skip": list(skip),
            "seeds": experiment.bisect.seeds if seeds is None else seeds,
            "layers": layers,
            "thorough": thorough,
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
            workers=experiment.bisect.workers if workers is None else workers,
            progress=progress,
            drain_seconds=drain_seconds,
        )


def check(
    run_id: str,
    *,
    root: Path | str = DEFAULT_ROOT,
    workers: int | None = 0,
    again: bool = False,
    progress: Progress | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> Verdict:
    """Examine a run that trained to its end: does its training step break a rule of its own?

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept.
        workers: Worker processes; 0 replays in this process, None takes the experiment's.
        again: Check anew though there is a verdict already.
        progress: Told what is being tried.
        drain_seconds: How long to wait at the end for MLflow to have received everything.

    Raises:
        RunNotFoundError: If there is no such run.
        StabexpError: If it diverged, so that `bisect` is for it, or recorded nothing.
        BusyError: If it is being examined by another process.
    """
    run_directory = find_run(run_id, root)
    if run_directory.kind != "run":
        raise not_a_run(run_id, run_directory)
    if run_directory.divergence() is not None:
        raise StabexpError(
            f"run {run_directory.run_id}: it diverged; find out why: "
            f"stabexp bisect {run_directory.run_id}"
        )
    experiment, _ = experiment_of(run_directory)
    with exclusive(run_directory.path / "bisect.lock"):
        options: dict[str, Any] = {"variables": [], "budget": None, "check": True}
        directory = bisect_directory(run_directory, options, again=again)
        if (directory.path / "verdict.json").exists() and directory.status() == "FINISHED":
            return directory.read_record(Verdict, "verdict.json")
        return _bisect(
            run_directory,
            directory,
            experiment,
            divergence=undiverged(run_directory.read_steps()),
            options={"variables": [], "budget": None},
            workers=experiment.bisect.workers if workers is None else workers,
            progress=progress,
            drain_seconds=drain_seconds,
        )


def _divergence(directory: RunDirectory) -> Divergence:
    found = directory.divergence()
    if found is not None:
        return found
    how = {
        "FINISHED": "it trained to its end without diverging; if something is wrong all the same: "
        f"stabexp check {directory.run_id}",
        "RUNNING": "it is still running, or was killed; `stabexp run --resume` goes on with it",
        "FAILED": "its training code raised an error before any divergence",
        "KILLED": "it was interrupted before any divergence; `stabexp run --resume` goes on",
    }[directory.status()]
    raise NotDivergedError(f"run {directory.run_id}: nothing to bisect: {how}")


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
    from stabexp.bisection.bisector import Bisector
    from stabexp.bisection.case import Case, Wishes
    from stabexp.bisection.inline_pool import InlinePool
    from stabexp.bisection.optuna_study import DoseStudies
    from stabexp.bisection.trials import Progress, TrialRunner
    from stabexp.bisection.workers import WorkerPool
    from stabexp.reporting.publish import record_verdict

    uploader = start_uploader(run_directory.path)
    start_notifier(run_directory.path, experiment.on_event)
    facts = run_directory.read_json("data.json")
    setup = experiments.setup_of(
        experiment, trivial_loss=facts.get("trivial_loss"), observed=observed_loop(run_directory)
    )
    case = Case(
        run_id=run_directory.run_id,
        records=run_directory.read_steps(),
        divergence=divergence,
        setup=setup,
        dataset_size=facts["dataset_size"],
        own_loop=experiment.train is not None,
        command=experiments.command_of(run_directory.read_json(experiments.SOURCE)),
    )
    storage = directory.path / "optuna.db"
    job, where = "stabexp.experiment:replay_job", {"directory": str(run_directory.path)}
    try:
        with (
            WorkerPool(workers, job, where, logs=directory.directory("logs"))
            if workers
            else InlinePool(job, where)
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
                wishes=Wishes(**{**options, "budget": Budget.parse(options["budget"])}),
            ).bisect()
            if experiment.bisect.show_samples:
                keep_samples(directory, pool, verdict)
        record_verdict(run_directory, directory, case.records, runner.records, verdict)
        draw_layers(run_directory)  # anew: the watched replay measured every layer at every step
    except BaseException as error:
        broken_off(directory, error)
        raise
    finally:
        uploader.poll()
    if not wait_for_upload(run_directory.path, drain_seconds) and progress is not None:
        uri = run_directory.manifest.tracking_uri
        if problem := upload_problem(run_directory.path):
            progress.note(f"warning: {problem}")
        progress.note(
            f"warning: {uri} has not received everything; the data is safe in "
            f"{run_directory.path}; send it later with stabexp sync"
        )
    return verdict
