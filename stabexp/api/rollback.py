"""One rollback: a new run that goes on from an earlier state of a crashed one, trained to its end.

Everything a rollback needs is written down before it begins, so one that was killed goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stabexp import experiment as experiments
from stabexp.api.one_training import OnStart, OnStep, go_on, train
from stabexp.api.runs import LOCK
from stabexp.config import Document, patched
from stabexp.errors import TrainingError
from stabexp.records import RecoveryAction
from stabexp.recovery.incident import is_out_of_memory
from stabexp.tracking import RunDirectory, exclusive, run_path


@dataclass(frozen=True, kw_only=True)
class Watchers:
    """Who is told while a run trains."""

    on_step: OnStep = None
    on_start: OnStart = None


def roll_back(
    action: RecoveryAction,
    crashed: RunDirectory,
    *,
    root: Path,
    watchers: Watchers,
) -> RunDirectory:
    """Train what an action says, or go on with it; return the run, which may have crashed again.

    Raises:
        TrainingError: If the training code raised something else than that memory ran out.
        CheckpointError: If the state to go on from cannot be used.
    """
    if action.run_id == crashed.run_id:
        try:
            go_on(crashed.run_id, root=root, on_step=watchers.on_step, on_start=watchers.on_start)
        except TrainingError as error:
            _only_memory(error)
        return RunDirectory.open(crashed.path)
    child = _child(action, crashed, root)
    if child.status() == "FINISHED" or child.divergence() is not None:
        return child
    with exclusive(child.path / LOCK):
        _begin(child, crashed, action)
        experiment, base = experiments.open_source(child.read_json(experiments.SOURCE))
        try:
            train(
                child,
                experiment,
                base=base,
                on_step=watchers.on_step,
                on_start=watchers.on_start,
                resumed=True,
            )
        except TrainingError as error:
            _only_memory(error)
    return RunDirectory.open(child.path)


def _only_memory(error: TrainingError) -> None:
    if not is_out_of_memory(str(error)):
        raise error


def _child(action: RecoveryAction, crashed: RunDirectory, root: Path) -> RunDirectory:
    path = run_path(action.run_id, root)
    if (path / "run.json").exists():
        return RunDirectory.open(path)
    source = crashed.read_json(experiments.SOURCE)
    document = patched(Document.from_json(source), action.settings, name=action.remedy)
    experiment = experiments.from_document(document, base=Path(source["base"]))
    return RunDirectory.create(
        path,
        run_id=action.run_id,
        kind="run",
        name=action.run_id,
        parent_path=crashed.path,
        experiment=crashed.manifest.experiment,
        tracking_uri=crashed.manifest.tracking_uri,
        params=experiments.flat(experiment),
        tags={
            "stabexp.role": "recovery",
            "stabexp.remedy": action.remedy,
            "stabexp.reason": action.why,
            "stabexp.from_step": str(action.from_step),
            "stabexp.recovers": crashed.run_id,
        },
    )


def _begin(child: RunDirectory, crashed: RunDirectory, action: RecoveryAction) -> None:
    """Give the run what it begins with; harmless when it has it and has gone on since."""
    from stabexp.training.forked import FORK, fork_into

    if (child.path / FORK).exists():
        child.resume()
        return
    source = crashed.read_json(experiments.SOURCE)
    document = patched(Document.from_json(source), action.settings, name=action.remedy)
    child.write_json(experiments.SOURCE, {**source, **document.to_json()})
    (child.path / "experiment.yaml").write_text(
        f"# {action.remedy} from step {action.from_step} of {crashed.run_id}\n"
        + experiments.as_file(document),
        "utf-8",
    )
    if action.from_step:  # at step 0 the run is made anew, which is the same state
        fork_into(child, crashed, action.from_step, empty_optimizer=action.forgets)
    child.write_json(
        FORK,
        {
            "parent": crashed.run_id,
            "step": action.from_step,
            "remedy": action.remedy,
            "settings": dict(action.settings),
        },
    )
    child.log_event(
        {
            "step": action.from_step,
            "by": "recovery",
            "message": f"goes on from {crashed.run_id} at step {action.from_step}: {action.why}",
        }
    )
