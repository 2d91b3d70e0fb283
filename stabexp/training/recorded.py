"""A training with everything recorded: steps, checkpoints, fingerprint, and what it ended in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from stabexp.errors import CheckpointError, TrackingError, TrainingError
from stabexp.monitors.alarms import AlarmWatch
from stabexp.records import Divergence, RunResult, StepRecord, to_json
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.fingerprint import environment
from stabexp.tracking.run_directory import DIVERGENCE, EVENTS, RunDirectory
from stabexp.tracking.web_view import COLOURS, FINDING_TAG
from stabexp.training.execute import execute, fingerprint_of
from stabexp.training.fork import Fork
from stabexp.training.forked import fork_step
from stabexp.training.run import Run
from stabexp.training.seen import LOOP, ramp
from stabexp.training.settings import Program

PLAN = "plan.json"
"""In a run directory: how many steps the training will make; written with its first step."""


def train_recorded(
    directory: RunDirectory,
    program: Program,
    *,
    on_step: Callable[[StepRecord], None] | None,
    resumed: bool = False,
    on_end: Callable[[], object] = lambda: None,
) -> RunResult:
    """Train, from the start or from the newest checkpoint, and record all of it in `directory`.

    Sending it to MLflow is somebody else's work, so the result is not yet delivered. `on_end` is
    called when all is recorded, just before the run counts as finished.

    Raises:
        TrainingError: If the training code raised; what was recorded until then is kept.
        CheckpointError: If it is to be resumed and has no usable checkpoint.
        TrackingError: If the directory cannot be written any more.
    """
    started = time.monotonic()
    settings = program.settings
    notices: list[str] = []
    store = CheckpointStore(
        directory.directory("checkpoints"),
        keep=settings.checkpoint_keep,
        first=fork_step(directory),
        on_error=lambda error: notices.append(f"a checkpoint could not be written: {error}"),
    )
    fork = _newest(directory, store, settings.checkpoint_every, notices) if resumed else None
    if resumed:
        directory.rewind(fork.step if fork is not None else 0)

    alarms = AlarmWatch()
    for record in directory.read_steps() if resumed else ():
        alarms.see(record)

    def record_step(record: StepRecord) -> None:
        if handle.last_record is None:  # a trainer that knows its own length has told it by now
            directory.write_json(PLAN, {"steps": handle.planned_steps})
        directory.log_step(record)
        for alarm in alarms.see(record):
            directory.log_event(alarm.to_event())
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
        on_event=directory.log_event,
    )
    trivial_loss = _describe(directory, program)
    (directory.path / "environment.txt").write_text(environment(), "utf-8")
    try:
        execute(
            program,
            handle,
            on_ready=lambda: directory.write_json("fingerprint.json", fingerprint_of(program)),
        )
    except BaseException as error:
        store.close()
        with suppress(TrackingError):  # the first error is the one to tell, not that of a full disk
            _publish(directory, handle, trivial_loss)
        if isinstance(error, SystemExit):
            raise TrainingError(
                f"at step {handle.step}: the training function called sys.exit({error.code}); "
                "let it return instead"
            ) from error
        raise
    store.close()
    for alarm in alarms.close():
        directory.log_event(alarm.to_event())
    _publish(directory, handle, trivial_loss)
    last = handle.last_record
    found = handle.divergence
    if found is not None:
        directory.write_json(DIVERGENCE, to_json(found))
        directory.add_artifact(DIVERGENCE)
        directory.set_tags(
            {
                "stabexp.status": "diverged",
                "stabexp.pattern": found.pattern,
                "stabexp.onset": found.onset,
                "stabexp.detected": found.detected,
                "mlflow.runName": f"{directory.run_id} DIVERGED@{found.detected}",
                "mlflow.runColor": COLOURS["diverged"],
                FINDING_TAG: found.message,
            }
        )
        directory.set_note(_divergence_note(directory, found))
    else:
        told = f"trained to its end: {handle.step:,} steps"
        if last is not None:
            told += f", loss {last.loss:.4g} in the last"
        directory.set_tags(
            {
                "stabexp.status": "healthy",
                "mlflow.runColor": COLOURS["healthy"],
                FINDING_TAG: told,
            }
        )
        directory.set_note(f"### {told[0].upper()}{told[1:]}\n\n{_meaning(directory)}")
    on_end()
    directory.finish("FAILED" if found is not None else "FINISHED")
    return RunResult(
        run_id=directory.run_id,
        directory=directory.path,
        status="finished" if found is None else "diverged",
        steps=handle.step,
        final_loss=last.loss if last else float("nan"),
        divergence=found,
        seconds=time.monotonic() - started,
        delivered=False,
        tracking_uri=directory.manifest.tracking_uri,
        notices=tuple(dict.fromkeys([*notices, *handle.notices, *alarms.notices()])),
    )


def _describe(directory: RunDirectory, program: Program) -> float | None:
    """Record what the training is about; return what a model that knows nothing scores."""
    facts = program.describe()
    if facts:
        name = str(facts["name"]).rpartition("/")[2]  # of a task in a file, without its folders
        directory.log_dataset(
            name=name,
            digest=str(facts["dataset_digest"])[:32],
            source=f"built into the task {name}",
            profile={"samples": facts["dataset_size"]},
        )
    trivial: float | None = facts.get("expected_initial_loss")
    directory.set_tags({"stabexp.checkpoints": directory.path / "checkpoints"})
    return trivial


def _newest(
    directory: RunDirectory, store: CheckpointStore, every: int, notices: list[str]
) -> Fork | None:
    """Return the newest usable checkpoint to go on from, None when none was due before the end.

    At least the last recorded step is made again. So it is judged once more, and a run that was
    killed in the moment of its divergence still ends there.
    """
    records = directory.read_steps()
    last = max(records[-1].step if records else 0, fork_step(directory))
    saved = [info for info in store.infos() if info.step <= last]
    newest = store.newest_usable(at_or_before=last)
    if newest is None:
        if saved or last >= every:
            raise CheckpointError(
                f"{store.directory}: none of the run's {len(saved)} checkpoints up to step {last} "
                "can be used, so it cannot go on; run the experiment again"
            )
        return None
    damaged = [info.step for info in saved if info.step > newest.step]
    if damaged:
        steps = ", ".join(map(str, damaged))
        notices.append(
            f"the checkpoint of step {steps} is damaged; went on from that of step {newest.step}"
        )
    earlier = [record for record in records if record.step < newest.step]
    return Fork(checkpoints=store.directory, step=newest.step, records=earlier)


def _publish(directory: RunDirectory, handle: Run, trivial_loss: float | None) -> None:
    """Hand the files of a run to MLflow, as far as they exist."""
    facts = {"dataset_size": handle.dataset_size, "trivial_loss": trivial_loss}
    directory.write_json("data.json", facts)
    if seen := handle.seen():
        records = directory.read_steps()
        rates = {"lr": max((r.lr for r in records), default=None), "warmup_steps": ramp(records)}
        directory.write_json(LOOP, seen | rates)
    for name in (
        "experiment.yaml",
        LOOP,
        "fingerprint.json",
        "environment.txt",
        "steps.jsonl",
        EVENTS,
        "emergency.json",
    ):
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


def _meaning(directory: RunDirectory) -> str:
    about = directory.manifest.tags.get("stabexp.description", "")
    return (
        (f"{' '.join(about.split())}\n\n" if about else "")
        + "No detector fired. Does its training step break a rule all the same? "
        f"`stabexp check {directory.run_id}`\n"
    )


def _divergence_note(directory: RunDirectory, found: Divergence) -> str:
    return (
        f"### Diverged at step {found.detected}\n\n{found.message}\n\n"
        f"- onset: step {found.onset}\n- pattern: {found.pattern.replace('_', ' ')}\n\n"
        f"Find out why: `stabexp bisect {directory.run_id}`\n"
    )
