"""What to do about one run that ended before its end: an action for each kind of incident."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp.api.runs import experiment_of
from stabexp.errors import StabexpError
from stabexp.records import Recovery, RecoveryAction, RemedyName
from stabexp.recovery import Incident, settings_of, split_batch
from stabexp.tracking import RunDirectory
from stabexp.tracking.catalogue import RECOVERED

if TYPE_CHECKING:
    from stabexp.api.choosing import Choice
    from stabexp.bisection.trials import Progress


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to do, and what finding it out took."""

    action: RecoveryAction | None = None
    """None when nothing is left to try."""
    verdict: str = ""
    """What a bisect named, where one was asked."""
    replayed: int = 0
    """Steps that trials replayed."""


class Answers:
    """Answers incident after incident of one recovery."""

    def __init__(
        self,
        origin: RunDirectory,
        *,
        root: Path,
        by_verdict: bool,
        give_back: bool,
        workers: int | None,
        progress: Progress | None,
    ) -> None:
        self.origin, self.root = origin, root
        self.by_verdict, self.give_back = by_verdict, give_back
        self.workers, self.progress = workers, progress
        self._so_far: Recovery

    def to(self, current: RunDirectory, incident: Incident, so_far: Recovery) -> Answer:
        """Return what to do about a run that ended before its end.

        Raises:
            StabexpError: If its own code raised, or its loop alone can make its batches smaller.
            CheckpointError: If it diverged and no checkpoint before that can be used.
        """
        self._so_far = so_far
        if incident.kind == "raised":
            raise StabexpError(
                f"run {current.run_id}: its own code raised an error, which no setting cures: "
                f"{incident.message}; mend it, then: stabexp run --resume {current.run_id}"
            )
        if incident.kind == "killed":
            return Answer(action=self._resumed(current, incident))
        if incident.kind == "out_of_memory":
            return Answer(action=self._split(current, incident))
        return self._diverged(current)

    def _resumed(self, current: RunDirectory, incident: Incident) -> RecoveryAction:
        step, checks = newest_state(current)
        return self._action(
            current,
            "plain_resume",
            why=f"{incident.message}; nothing in its figures was wrong",
            from_step=step,
            checks=checks,
            in_place=True,
        )

    def _split(self, current: RunDirectory, incident: Incident) -> RecoveryAction | None:
        """Make micro-batches smaller; where that is not possible, keep fewer activations."""
        experiment, _ = experiment_of(current)
        why = f"memory ran out at step {incident.step}: {incident.message}"
        step, checks = newest_state(current)
        batch = experiment.batch
        split = split_batch(batch.size, batch.accumulate) if experiment.task else None
        if split is not None:
            return self._action(
                current,
                "smaller_micro_batch",
                why=why,
                from_step=step,
                settings={"batch.size": split[0], "batch.accumulate": split[1]},
                checks=checks,
            )
        known = {action.remedy for action in self._so_far.actions}
        if "activation_checkpointing" not in known | set(experiment.stabilisers):
            return self._action(
                current,
                "activation_checkpointing",
                why=why,
                from_step=step,
                settings={"stabilisers.activation_checkpointing": {}},
                checks=checks,
            )
        if experiment.task is None:
            raise StabexpError(
                f"run {current.run_id}: memory ran out at step {incident.step}, and its loop is "
                "your own, so only you can make its micro-batches smaller: use half the batch "
                "size, divide the loss by 2, and step the optimizer every second batch; then run "
                "it again (the samples per update stay the same)"
            )
        return None

    def _diverged(self, current: RunDirectory) -> Answer:
        from stabexp.api.choosing import Chooser

        chooser = Chooser(current, root=self.root, progress=self.progress)
        actions = self._so_far.actions
        before = [a for a in actions if a.crashed_run == current.run_id]
        choice: Choice | None = None
        verdict = ""
        if self.by_verdict and not before:
            found, choice = chooser.by_verdict(workers=self.workers)
            verdict = f"{found.cause} (confidence {found.confidence:.2f})"
        if choice is None:
            blamed = any("replace_samples" in key for a in actions for key in a.settings)
            choice = chooser.by_rules({a.why for a in before}, samples_blamed=blamed)
        if choice is None:
            return Answer(verdict=verdict)
        action = self._chosen(current, choice)
        return Answer(action=action, verdict=verdict, replayed=choice.replayed)

    def _chosen(self, current: RunDirectory, choice: Choice) -> RecoveryAction:
        remedy = choice.remedy
        experiment, _ = experiment_of(current)
        settings = settings_of(
            remedy,
            experiment.interventions,
            choice.window,
            give_back=self.give_back,
            eased=experiment.stabilisers.get("danger_window"),
        )
        return self._action(
            current,
            remedy.name,
            why=remedy.why,
            from_step=choice.fork,
            settings=settings,
            checks=choice.checks,
            window=(choice.window.first, choice.window.last),
            forgets=remedy.forgets,
        )

    def _action(
        self,
        current: RunDirectory,
        remedy: RemedyName,
        *,
        why: str,
        from_step: int,
        settings: Mapping[str, Any] | None = None,
        checks: tuple[str, ...] = (),
        window: tuple[int, int] = (0, 0),
        forgets: bool = False,
        in_place: bool = False,
    ) -> RecoveryAction:
        number = len(self._so_far.actions) + 1
        return RecoveryAction(
            number=number,
            remedy=remedy,
            why=why,
            crashed_run=current.run_id,
            run_id=current.run_id if in_place else self._new_id(),
            from_step=from_step,
            settings=dict(settings or {}),
            checks=checks,
            window=window,
            forgets=forgets,
        )

    def _new_id(self) -> str:
        runs = self.root / "runs"
        number = 1
        while (runs / f"{self.origin.run_id}{RECOVERED}{number}").exists():
            number += 1
        return f"{self.origin.run_id}{RECOVERED}{number}"


def newest_state(current: RunDirectory) -> tuple[int, tuple[str, ...]]:
    """Return the step of the newest usable checkpoint, and what was found of it."""
    from stabexp.state.checkpoints import CheckpointStore

    records = current.read_steps()
    last = records[-1].step if records else 0  # the last step is made again, and judged again
    store = CheckpointStore.reader(current.path / "checkpoints")
    newest = store.newest_usable(last)
    if newest is None:
        return 0, ("no checkpoint can be used: from the start",)
    finite = "every parameter and buffer is finite" if newest.finite else "NOT FINITE"
    found = [f"checkpoint of step {newest.step}: its checksum is right, {finite}"]
    for info in store.infos():
        if newest.step < info.step <= last:
            found.append(f"checkpoint of step {info.step}: damaged, passed over")
    return newest.step, tuple(found)
