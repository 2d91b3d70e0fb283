"""The Python interface: run an experiment, bisect a run, load what was recorded.

The only file that wires the parts together. The command line calls these functions and prints.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stabexp import experiment as experiments
from stabexp.bisection.facts import Setup
from stabexp.errors import (
    NotDivergedError,
    RunNotFoundError,
    StabexpError,
    TrackingError,
)
from stabexp.records import (
    Divergence,
    StepRecord,
    TrialRecord,
    Verdict,
    from_json,
    to_json,
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
from stabexp.tracking.run_directory import STORE_ID
from stabexp.tracking.uploader import start_uploader, wait_for_upload
from stabexp.tracking.web_view import artifact_link, runs_view_tag

if TYPE_CHECKING:
    import pandas as pd

    from stabexp.bisection.trials import Progress

DRAIN_SECONDS = 60.0
"""How long to wait, once the work is done, for MLflow to have received it."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What became of a run."""

    run_id: str
    directory: Path
    status: Literal["finished", "diverged"]
    steps: int
    """Updates made, in all."""
    final_loss: float
    divergence: Divergence | None
    seconds: float
    delivered: bool
    """Whether MLflow has received everything; if not, `stabexp sync` sends the rest later."""
    tracking_uri: str
    notices: tuple[str, ...] = ()
    """What did not go as planned without ending the run, one sentence each."""


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
    source = experiments.save_source(document, base=path.parent)
    directory = _create(experiment, root)
    directory.write_json(experiments.SOURCE, source)
    (directory.path / "experiment.yaml").write_text(path.read_text(encoding="utf-8"), "utf-8")
    uploader = start_uploader(directory.path)
    try:
        if on_start is not None:
            on_start(directory, experiment)
        program = experiments.program(experiment, base=path.parent)
        return _train(directory, program, on_step=on_step, drain_seconds=drain_seconds)
    except BaseException as error:
        if directory.status() == "RUNNING":
            directory.finish("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    finally:
        uploader.poll()


def resume(
    run_id: str,
    *,
    root: Path = DEFAULT_ROOT,
    on_step: Callable[[StepRecord], None] | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> RunResult:
    """Go on with a run that was interrupted, from its newest checkpoint, as if it never had been.

    Raises:
        StabexpError: If the run ended by itself, so that there is nothing to go on with.
        CheckpointError: If it has no usable checkpoint.
    """
    directory = find_run(run_id, root)
    if directory.status() == "FINISHED" or (directory.path / "divergence.json").exists():
        raise StabexpError(
            f"run {directory.run_id}: has ended by itself; there is nothing to resume"
        )
    experiment, base = experiments.open_source(directory.read_json(experiments.SOURCE))
    with exclusive(directory.path / "run.lock"):
        directory.resume()
        uploader = start_uploader(directory.path)
        try:
            program = experiments.program(experiment, base=base)
            return _train(
                directory, program, on_step=on_step, drain_seconds=drain_seconds, resumed=True
            )
        except BaseException as error:
            if directory.status() == "RUNNING":
                directory.finish("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
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
        tracking_uri=uri or local_tracking_uri(root),
        params=experiments.flat(experiment),
        tags={"stabexp.role": "run", "stabexp.description": experiment.description},
    )
    directory.set_experiment_tags(dict([runs_view_tag(time_ms=time.time_ns() // 1_000_000)]))
    return directory


def _train(
    directory: RunDirectory,
    program: Any,
    *,
    on_step: Callable[[StepRecord], None] | None,
    drain_seconds: float,
    resumed: bool = False,
) -> RunResult:
    from stabexp.state import CheckpointStore, fingerprint
    from stabexp.training import Fork, Run, execute

    started = time.monotonic()
    settings = program.settings
    notices: list[str] = []
    store = CheckpointStore(
        directory.directory("checkpoints"),
        keep=settings.checkpoint_keep,
        on_error=lambda error: notices.append(f"a checkpoint could not be written: {error}"),
    )
    fork = None
    if resumed:
        newest = store.newest_usable()
        records = directory.read_steps()
        if newest is not None:
            fork = Fork(
                checkpoints=store.directory,
                step=newest.step,
                records=[record for record in records if record.step < newest.step],
            )

    def record_step(record: StepRecord) -> None:
        directory.log_step(record)
        if on_step is not None:
            on_step(record)

    def record_divergence(found: Divergence, history: Sequence[StepRecord]) -> None:
        _write_emergency(directory, found, history)

    handle = Run(
        settings,
        fork=fork,
        keep_saving=True,
        checkpoints=store,
        on_step=record_step,
        on_divergence=record_divergence,
    )
    _describe(directory, program)
    try:
        execute(
            program,
            handle,
            on_ready=lambda: directory.write_json(
                "fingerprint.json", fingerprint(device=settings.device)
            ),
        )
    finally:
        store.close()
        directory.write_json("data.json", {"dataset_size": handle.dataset_size})
        _publish(directory)
    last = handle.last_record
    found = handle.divergence
    if found is not None:
        directory.write_json("divergence.json", to_json(found))
        directory.add_artifact("divergence.json")
        directory.set_tags(
            {
                "stabexp.status": "diverged",
                "stabexp.pattern": found.pattern,
                "stabexp.onset": found.onset,
                "stabexp.detected": found.detected,
                "mlflow.runName": f"{directory.run_id} DIVERGED@{found.detected}",
                "mlflow.runColor": "#c62828",
            }
        )
        directory.set_note(_divergence_note(directory, found))
    else:
        directory.set_tags({"stabexp.status": "healthy", "mlflow.runColor": "#2e7d32"})
    directory.finish("FAILED" if found is not None else "FINISHED")
    return RunResult(
        run_id=directory.run_id,
        directory=directory.path,
        status="finished" if found is None else "diverged",
        steps=handle.step,
        final_loss=last.loss if last else float("nan"),
        divergence=found,
        seconds=time.monotonic() - started,
        delivered=wait_for_upload(directory.path, drain_seconds),
        tracking_uri=directory.manifest.tracking_uri,
        notices=tuple(dict.fromkeys(notices)),
    )


def _describe(directory: RunDirectory, program: Any) -> None:
    facts = program.describe()
    if facts:
        directory.log_dataset(
            name=str(facts["name"]),
            digest=str(facts["dataset_digest"])[:32],
            source=f"built into the task {facts['name']}",
            profile={"samples": facts["dataset_size"]},
        )
    directory.set_tags({"stabexp.checkpoints": directory.path / "checkpoints"})


def _publish(directory: RunDirectory) -> None:
    """Hand the files of a run to MLflow, as far as they exist."""
    for name in ("experiment.yaml", "fingerprint.json", "steps.jsonl", "emergency.json"):
        if (directory.path / name).exists():
            directory.add_artifact(name)
    index = directory.path / "checkpoints" / "checkpoints.jsonl"
    if index.exists():
        directory.add_artifact("checkpoints/checkpoints.jsonl", to="checkpoints")


def _write_emergency(
    directory: RunDirectory, found: Divergence, history: Sequence[StepRecord]
) -> None:
    last = list(history)[-100:]
    directory.write_json(
        "emergency.json",
        {
            "divergence": to_json(found),
            "steps": [record.step for record in last],
            "losses": [_text(record.loss) for record in last],
            "gradient_norms": [_text(record.grad_norm) for record in last],
            "checkpoint": f"checkpoints: the state after step {found.detected}",
        },
    )


def _text(value: float) -> float | str:
    return value if value - value == 0 else str(value)


def _divergence_note(directory: RunDirectory, found: Divergence) -> str:
    return (
        f"# Diverged at step {found.detected}\n\n{found.message}\n\n"
        f"- onset: step {found.onset}\n- pattern: {found.pattern.replace('_', ' ')}\n\n"
        f"Find out why: `stabexp bisect {directory.run_id}`\n"
    )


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
    experiment, _ = experiments.open_source(run_directory.read_json(experiments.SOURCE))
    chosen = tuple(variables or experiment.bisect.variables)
    with exclusive(run_directory.path / "bisect.lock"):
        options = {
            "variables": list(chosen),
            "budget": budget if budget is not None else experiment.bisect.budget,
        }
        directory = _bisect_directory(run_directory, options, again=again)
        if (directory.path / "verdict.json").exists() and directory.status() == "FINISHED":
            return from_json(Verdict, directory.read_json("verdict.json"))
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
    try:
        return from_json(Divergence, directory.read_json("divergence.json"))
    except TrackingError:
        if (directory.path / "divergence.json").exists():
            raise
    how = {
        "FINISHED": "it trained to its end without diverging",
        "RUNNING": "it is still running, or was killed; `stabexp run --resume` goes on with it",
        "FAILED": "its training code raised an error before any divergence",
        "KILLED": "it was interrupted before any divergence; `stabexp run --resume` goes on with it",
    }[directory.status()]
    raise NotDivergedError(f"run {directory.run_id}: nothing to bisect: {how}")


def _bisect_directory(
    run_directory: RunDirectory, options: Mapping[str, Any], *, again: bool
) -> RunDirectory:
    """Return the bisect to go on with: the latest one with these options, else a new one."""
    bisects = run_directory.directory("bisects")
    earlier = [child for child in run_directory.children() if child.kind == "bisect"]
    for directory in reversed(earlier):
        finished = directory.status() == "FINISHED"
        if directory.read_json("options.json") == options and not (again and finished):
            if not finished:
                directory.resume()
            return directory
    number = len(earlier) + 1
    directory = RunDirectory.create(
        bisects / f"bisect-{number}",
        run_id=f"{run_directory.run_id}.bisect-{number}",
        kind="bisect",
        name=f"bisect {number} of {run_directory.run_id}",
        parent_path=run_directory.path,
        experiment=run_directory.manifest.experiment,
        tracking_uri=run_directory.manifest.tracking_uri,
        params={"variables": " ".join(options["variables"]), "budget": options["budget"]},
        tags={"stabexp.role": "bisect"},
    )
    directory.write_json("options.json", options)
    return directory


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

    uploader = start_uploader(run_directory.path)
    case = Case(
        run_id=run_directory.run_id,
        records=run_directory.read_steps(),
        divergence=divergence,
        setup=setup_of(experiment),
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
        _record_verdict(run_directory, directory, case.records, runner.records, verdict)
    except BaseException as error:
        if directory.status() == "RUNNING":
            directory.finish("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    finally:
        uploader.poll()
    wait_for_upload(run_directory.path, drain_seconds)
    return verdict


def setup_of(experiment: experiments.Experiment) -> Setup:
    """Return how an experiment is configured, as far as the decision tree asks."""
    micro_batch = experiment.batch.size * int(experiment.interventions.get("batch_size", 1))
    return Setup(
        lr=experiment.optimizer.lr if experiment.optimizer else None,
        warmup_steps=int(experiment.interventions.get("warmup", experiment.schedule.warmup_steps)),
        clip_norm=experiment.clip,
        precision=experiment.precision,
        batch_size=micro_batch * experiment.batch.accumulate,
        micro_batch=micro_batch,
        steps=experiment.steps,
    )


def _record_verdict(
    run_directory: RunDirectory,
    directory: RunDirectory,
    records: Sequence[StepRecord],
    trials: Sequence[TrialRecord],
    verdict: Verdict,
) -> None:
    from stabexp.reporting import verdict_note, verdict_page

    text = (run_directory.path / "experiment.yaml").read_text("utf-8")
    steps = {
        record.spec.key: RunDirectory.open(
            directory.path / "trials" / record.directory
        ).read_steps()
        for record in trials
    }
    page = verdict_page(
        verdict,
        trials,
        steps=records,
        trial_steps=steps,
        experiment=text,
        fingerprint=run_directory.read_json("fingerprint.json"),
    )
    note = verdict_note(
        verdict,
        trials,
        experiment=text,
        page_link=artifact_link(STORE_ID, "report/verdict.html"),
    )
    tags = {
        "stabexp.cause": verdict.cause,
        "stabexp.confidence": f"{verdict.confidence:.2f}",
        "stabexp.verdict": verdict.summary,
        "stabexp.fix": json.dumps(dict(verdict.fix)),
    }
    data = {"verdict": to_json(verdict), "trials": [to_json(record) for record in trials]}
    for target in (directory, run_directory):
        folder = target.directory("report")
        (folder / "verdict.html").write_text(page, "utf-8")
        target.write_json("report/verdict.json", data)
        target.add_artifact("report/verdict.html", to="report")
        target.add_artifact("report/verdict.json", to="report")
        target.set_note(note)
        target.set_tags(tags)
    if (directory.path / "optuna.db").exists():
        directory.add_artifact("optuna.db")
    directory.set_metrics(
        {
            "verdict/confidence": verdict.confidence,
            "verdict/trials": verdict.trials,
            "verdict/replayed_steps": verdict.replayed_steps,
        }
    )
    directory.set_tags(
        {
            "mlflow.runName": f"bisect: {verdict.cause} ({run_directory.run_id})",
            "mlflow.runColor": "#1565c0",
        }
    )
    directory.save_view(f"bisect of {run_directory.run_id}")
    directory.write_json("verdict.json", to_json(verdict))
    directory.finish("FINISHED")


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
        raise RunNotFoundError(f"{run_id}: is a {directory.kind}, not a run; name its run")
    experiment, _ = experiments.open_source(directory.read_json(experiments.SOURCE))
    divergence = None
    if (directory.path / "divergence.json").exists():
        divergence = from_json(Divergence, directory.read_json("divergence.json"))
    trials: tuple[TrialRecord, ...] = ()
    verdict = None
    bisects = [child for child in directory.children() if child.kind == "bisect"]
    if bisects:
        from stabexp.bisection.trials import read_trials

        trials = read_trials(bisects[-1])
        if (bisects[-1].path / "verdict.json").exists():
            verdict = from_json(Verdict, bisects[-1].read_json("verdict.json"))
    return Loaded(
        run_id=directory.run_id,
        directory=directory.path,
        experiment=experiment,
        records=tuple(directory.read_steps()),
        divergence=divergence,
        trials=trials,
        verdict=verdict,
    )


__all__ = ["Loaded", "RunResult", "bisect", "load", "resume", "run", "setup_of"]
