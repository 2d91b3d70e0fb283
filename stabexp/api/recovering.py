"""Bring a crashed run to its end: go back to a good state, change what has to be, and go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp.api.answers import Answers
from stabexp.api.one_training import OnStart, OnStep
from stabexp.api.rollback import Watchers, roll_back
from stabexp.api.runs import (
    DRAIN_SECONDS,
    ERROR,
    LOCK,
    experiment_of,
    not_a_run,
    refuse_while_loading,
)
from stabexp.errors import ConfigError, NotDivergedError
from stabexp.notifications import start_notifier
from stabexp.records import Recovery, RecoveryAction, to_json
from stabexp.recovery import Incident, incident_of
from stabexp.recovery.learned import level, made_again, shortfall
from stabexp.recovery.wording import summary
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader, wait_for_upload

if TYPE_CHECKING:
    from stabexp.bisection.trials import Progress

RECOVERY = "recovery.json"
"""In a crashed run's directory: what was done about it so far."""
CRASHES = 3
"""Crashes that a recovery answers; at the next one it gives up (source row A14)."""


def recover(
    run_id: str,
    *,
    root: Path | str = DEFAULT_ROOT,
    without_verdict: bool = False,
    give_back: bool = False,
    crashes: int = CRASHES,
    workers: int | None = None,
    again: bool = False,
    on_step: OnStep = None,
    on_start: OnStart = None,
    progress: Progress | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> Recovery:
    """Go on with a run that crashed, from a good state and with what cures, until its end.

    Stopped or killed, it goes on where it was when it is called again.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept.
        without_verdict: Do not bisect a run that diverged; go by rules, each tried in a replay.
        give_back: Ramp the original rate and clipping back once the danger window is passed.
        crashes: How many crashes to answer, the first one counted; at the next one it gives up.
        workers: Worker processes of a bisect; None takes the experiment's.
        again: Recover anew though it was done already.
        on_step: Called with every step's record of the runs that go on.
        on_start: Called with each run that goes on.
        progress: Told what is being tried.
        drain_seconds: How long to wait at the end for MLflow to have received everything.

    Raises:
        RunNotFoundError: If there is no such run.
        NotDivergedError: If it trained to its end.
        CheckpointError: If there is no state to go on from.
        TrainingError: If its code raised an error that no state and no setting cures.
        BusyError: If it is still running, or being recovered by another process.
    """
    refuse_while_loading("stabexp.recover")
    root = Path(root)
    directory = find_run(run_id, root)
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    with exclusive(directory.path / "recover.lock"):
        with exclusive(directory.path / LOCK):
            pass  # nobody trains it
        kept = _kept(directory)
        if kept is not None and kept.status != "running" and not again:
            return kept
        going = None if again else kept
        uploader = start_uploader(directory.path)
        start_notifier(directory.path, experiment_of(directory)[0].on_event, until=RECOVERY)
        try:
            done = _Recovering(
                directory,
                going,
                root=root,
                crashes=crashes,
                answers=Answers(
                    directory,
                    root=root,
                    by_verdict=not without_verdict,
                    give_back=give_back,
                    workers=workers,
                    progress=progress,
                ),
                watchers=Watchers(on_step=on_step, on_start=on_start),
            ).recover()
        finally:
            uploader.poll()
    wait_for_upload(find_run(done.final_run, root).path, drain_seconds)
    return done


def _kept(directory: RunDirectory) -> Recovery | None:
    if not (directory.path / RECOVERY).exists():
        return None
    return directory.read_record(Recovery, RECOVERY)


class _Recovering:
    """One recovery, from incident to incident."""

    def __init__(
        self,
        origin: RunDirectory,
        going: Recovery | None,
        *,
        root: Path,
        crashes: int,
        answers: Answers,
        watchers: Watchers,
    ) -> None:
        self.origin, self.root, self.crashes = origin, root, crashes
        self.answers, self.watchers = answers, watchers
        incident = self._incident(origin)
        if going is None:
            if incident is None:
                raise NotDivergedError(
                    f"run {origin.run_id}: it trained to its end; there is nothing to recover"
                )
            going = Recovery(
                run_id=origin.run_id,
                status="running",
                incident=incident.kind,
                what=incident.told,
            )
        self.state = going

    def recover(self) -> Recovery:
        """Roll back until a run trains to its end, or there have been too many crashes."""
        current = self.origin
        for action in self.state.actions:
            current = self._after(self._act(action))
        while (incident := self._incident(current)) is not None:
            if len(self.state.actions) + 1 > self.crashes:
                return self._end("gave_up", current)
            answer = self.answers.to(current, incident, self.state)
            self._save(
                verdict=answer.verdict or self.state.verdict,
                replayed_steps=self.state.replayed_steps + answer.replayed,
            )
            if answer.action is None:
                return self._end("gave_up", current)
            self._save(actions=(*self.state.actions, answer.action))
            current = self._after(self._act(answer.action))
        return self._end("recovered", current)

    def _incident(self, directory: RunDirectory) -> Incident | None:
        records = directory.read_steps()
        error = directory.read_json(ERROR)["message"] if (directory.path / ERROR).exists() else ""
        return incident_of(
            status=directory.status(),
            divergence=directory.divergence(),
            error=error,
            last_step=records[-1].step if records else -1,
        )

    def _act(self, action: RecoveryAction) -> RecoveryAction:
        """Do what an action says, unless it is done; return it with what came of it."""
        if action.outcome != "running":
            return action
        crashed = find_run(action.crashed_run, self.root)
        recorded = crashed.read_steps()
        try:
            ran = roll_back(action, crashed, root=self.root, watchers=self.watchers)
        except ConfigError as error:
            if action.remedy != "activation_checkpointing":
                raise
            return self._done(replace(action, outcome="crashed_again", note=str(error)))
        incident = self._incident(ran)
        records = ran.read_steps()
        if ran.run_id == crashed.run_id:
            action = replace(action, checks=(*action.checks, made_again(recorded, records)))
        done = replace(action, outcome="crashed_again", note=incident.told if incident else "")
        if incident is None:
            crash = crashed.divergence()
            lost = shortfall(records, recorded, crash) if crash else ""
            done = replace(
                action,
                outcome="did_not_learn" if lost else "trained_to_the_end",
                note=lost or f"{records[-1].step + 1} steps",
            )
        return self._done(done)

    def _done(self, done: RecoveryAction) -> RecoveryAction:
        """Write down how an action ended."""
        actions = [done if a.number == done.number else a for a in self.state.actions]
        self._save(actions=tuple(actions))
        self.origin.log_event(
            {
                "step": done.from_step,
                "by": "recovery",
                "message": f"rollback {done.number}: {done.remedy} from step {done.from_step}: "
                f"{done.outcome.replace('_', ' ')}",
                "run": done.run_id,
            }
        )
        return done

    def _after(self, action: RecoveryAction) -> RunDirectory:
        """Return the run whose state counts after an action.

        A run that crashed inside its danger window crashed of the same thing: then it is the run
        before it that is answered again, with another remedy.
        """
        ran = find_run(action.run_id, self.root)
        crash = ran.divergence()
        made = any(r.step >= action.from_step for r in ran.read_steps())
        same = (
            not made
            or action.outcome == "did_not_learn"
            or (crash is not None and action.window[0] <= crash.detected < action.window[1])
        )
        return find_run(action.crashed_run, self.root) if same else ran

    def _save(self, **fields: Any) -> None:
        self.state = replace(self.state, **fields)
        self.origin.write_json(RECOVERY, to_json(self.state))

    def _end(self, status: Any, current: RunDirectory) -> Recovery:
        records = current.read_steps()
        fields = {
            "status": status,
            "loss": level(records),
            "steps": records[-1].step + 1 if records else 0,
            "next_command": "" if status == "recovered" else f"stabexp bisect {current.run_id}",
        }
        ended = replace(self.state, **fields)
        self._save(**fields, summary=summary(ended))
        self.origin.add_artifact(RECOVERY)
        self.origin.set_tags(
            {
                "stabexp.recovery": status,
                "stabexp.recovered_by": ended.final_run,
                "stabexp.rollbacks": ended.rollbacks,
            }
        )
        return self.state
