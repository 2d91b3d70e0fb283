"""A training with everything recorded: steps, checkpoints, fingerprint, and what it ended in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stabexp.records import Divergence, RunResult, StepRecord, to_json
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.fingerprint import fingerprint
from stabexp.tracking.run_directory import RunDirectory
from stabexp.training.execute import execute
from stabexp.training.fork import Fork
from stabexp.training.run import Run
from stabexp.training.settings import Program


def train_recorded(
    directory: RunDirectory,
    program: Program,
    *,
    on_step: Callable[[StepRecord], None] | None,
    resumed: bool = False,
) -> RunResult:
    """Train, from the start or from the newest checkpoint, and record all of it in `directory`.

    Sending it to MLflow is somebody else's work, so the result is not yet delivered.

    Raises:
        TrainingError: If the training code raised; what was recorded until then is kept.
        TrackingError: If the directory cannot be written any more.
    """
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
        delivered=False,
        tracking_uri=directory.manifest.tracking_uri,
        notices=tuple(dict.fromkeys(notices)),
    )


def _describe(directory: RunDirectory, program: Program) -> None:
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
