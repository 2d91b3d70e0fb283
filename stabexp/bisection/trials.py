"""Runs trials in worker processes, and never one twice.

A trial is known by what it does (its spec's key). Its directory holds its step log and, once it ran
to its end, its record: so a bisect that was killed finds what is finished and runs only the rest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stabexp import errors
from stabexp.bisection.inline_pool import Pool
from stabexp.bisection.outlook import Standing
from stabexp.bisection.trial_entry import (
    change,
    trial_name,
    trial_note,
    trial_params,
    trial_result,
)
from stabexp.bisection.workers import WorkerFailure
from stabexp.errors import CheckpointError, StabexpError, TrackingError, TrainingError
from stabexp.records import StepRecord, TrialRecord, TrialSpec, from_json, to_json
from stabexp.tracking.manifest import write_json
from stabexp.tracking.run_directory import RunDirectory

RECORD = "trial.json"
"""Where a trial's record is; its presence says that the trial ran to its end."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What to tell the user while trials run."""

    started: Callable[[TrialSpec], None] = lambda spec: None
    finished: Callable[[TrialRecord, bool], None] = lambda record, reused: None
    """Called with the record and whether it was already there from an earlier start."""
    note: Callable[[str], None] = lambda text: None
    phase: Callable[[str, str], None] = lambda name, left: None
    """Called when a phase begins, with its name and what comes after it."""
    standing: Callable[[Standing], None] = lambda standing: None
    """Called after `phase`, with what is known by then and what is still to come."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a worker found before the first trial."""

    good_step: int
    """Step of the last good checkpoint."""
    from_scratch: bool
    """Whether the checkpoint of step 0 can be used."""
    starts: tuple[int, ...] = ()
    """Steps of all usable checkpoints, oldest first."""
    warnings: tuple[str, ...] = ()
    """Damaged checkpoints, and what differs from the machine that recorded the run."""


class TrialRunner:
    """Submits trials to a pool, reuses finished ones, and keeps all records in order."""

    def __init__(
        self,
        bisect: RunDirectory,
        pool: Pool,
        *,
        params: Mapping[str, Any],
        progress: Progress,
    ) -> None:
        """`params` are the diverged run's parameters, which every trial shows beside its own."""
        self.bisect = bisect
        self.pool = pool
        self.params = params
        self.progress = progress
        self.records: list[TrialRecord] = []
        """Finished trials in the order in which they finished."""
        self.replayed_steps = 0
        self._trials = bisect.directory("trials")
        self._running: dict[int, tuple[TrialSpec, RunDirectory]] = {}
        self._died: set[str] = set()
        """Keys of trials whose worker died once."""
        self._ready: deque[TrialRecord] = deque()
        self._finished = self._read_finished()

    def _read_finished(self) -> dict[str, TrialRecord]:
        """Return the records on disk by key, and close what an earlier process left open."""
        found: dict[str, TrialRecord] = {}
        for directory in self.bisect.children():
            if (directory.path / RECORD).exists():
                record = directory.read_record(TrialRecord, RECORD)
                found[record.spec.key] = replace(record, directory=directory.path.name)
                if directory.status() == "RUNNING":
                    self._publish(directory, found[record.spec.key])
            elif directory.status() == "RUNNING":
                directory.finish("KILLED")
        return found

    @property
    def busy(self) -> int:
        """How many submitted trials have not been returned by `wait`."""
        return len(self._running) + len(self._ready)

    def submit(self, spec: TrialSpec) -> None:
        """Start a trial, or take it from disk when it is finished already."""
        if (known := self._finished.get(spec.key)) is not None:
            self._ready.append(known)
            return
        self._start(spec)

    def _start(self, spec: TrialSpec) -> None:
        trial = self._create(spec)
        self.progress.started(spec)
        ticket = self.pool.submit({"spec": to_json(spec), "trial": str(trial.path)})
        self._running[ticket] = (spec, trial)

    def _create(self, spec: TrialSpec) -> RunDirectory:
        attempts = len(list(self._trials.glob(f"{spec.key}*/run.json")))
        name = spec.key + (f"-{attempts + 1}" if attempts else "")
        return RunDirectory.create(
            self._trials / name,
            run_id=f"{self.bisect.run_id}.{name}",
            kind="trial",
            name=f"-- {change(spec)}",
            parent_path=self.bisect.path,
            experiment=self.bisect.manifest.experiment,
            tracking_uri=self.bisect.manifest.tracking_uri,
            params=trial_params(spec, self.params),
            tags={"stabexp.role": spec.role, "stabexp.reason": spec.reason},
        )

    def wait(self) -> TrialRecord:
        """Return the next trial that finishes.

        Raises:
            CheckpointError: If a checkpoint the bisect needs is damaged.
            TrackingError: If a trial cannot be recorded, for example on a full disk.
            TrainingError: If the unchanged training cannot be run.
        """
        if self._ready:
            return self._keep(self._ready.popleft(), reused=True)
        ticket, result = self.pool.wait()
        spec, trial = self._running.pop(ticket)
        died = isinstance(result, WorkerFailure) and result.exit_code is not None
        if died and spec.key not in self._died:
            # Killed from outside, most likely for memory: that says nothing about the change yet.
            self._died.add(spec.key)
            trial.finish("KILLED")
            self.progress.note(f"a worker died during '{spec.reason}'; it is tried once more")
            self._start(spec)
            return self.wait()
        if isinstance(result, WorkerFailure):
            return self._keep(self._failed(spec, trial, result), reused=False)
        record = from_json(TrialRecord, result)
        record = self._keep(record, reused=False)
        self._publish(trial, record)
        return record

    def _failed(self, spec: TrialSpec, trial: RunDirectory, failure: WorkerFailure) -> TrialRecord:
        error = error_of(failure)
        if isinstance(error, TrackingError) or (
            isinstance(error, CheckpointError) and not spec.from_trial
        ):
            _give_up(trial)
            raise error
        if spec.role == "control":
            _give_up(trial)
            told = str(error) if error else f"{failure.message}\n{failure.log}".rstrip()
            raise TrainingError(f"the unchanged replay could not be run: {told}")
        record = TrialRecord(
            spec=spec,
            outcome="inconclusive",
            last_step=spec.from_step - 1,
            directory=trial.path.name,
            note=failure.message,
        )
        trial.write_json(RECORD, to_json(record))
        self._publish(trial, record)
        return record

    def _keep(self, record: TrialRecord, *, reused: bool) -> TrialRecord:
        if not reused or record.number < 0:
            number = 1 + max((known.number for known in self._finished.values()), default=-1)
            record = replace(record, number=number, name=trial_name(number, record))
            trial_directory = self._trials / record.directory
            write_json(trial_directory / RECORD, to_json(record))
        self._finished[record.spec.key] = record
        if all(known.spec.key != record.spec.key for known in self.records):
            self.records.append(record)
            self.replayed_steps += record.cost
            self.progress.finished(record, reused)
        return record

    def _publish(self, trial: RunDirectory, record: TrialRecord) -> None:
        """Give the trial the name, colour and figures by which MLflow tells the story."""
        result = trial_result(record)
        trial.log_params(result["params"])
        trial.set_metrics(result["metrics"])
        trial.set_tags(result["tags"])
        run = self.bisect.parent
        run_id = self.bisect.run_id if run is None else run.run_id
        trial.set_note(trial_note(record, run_id=run_id, bisect_id=self.bisect.run_id))
        trial.add_artifact(RECORD)
        if (trial.path / "steps.jsonl").exists():
            trial.add_artifact("steps.jsonl")
        # A scan trains nothing that could fail: MLflow would mark it with a cross.
        done = record.outcome == "cured" or (record.spec.role == "scan" and record.steps > 0)
        trial.finish("FINISHED" if done else "FAILED")

    def run(self, specs: Iterable[TrialSpec]) -> tuple[TrialRecord, ...]:
        """Run trials side by side; return their records in the order of the specs."""
        keys = []
        for spec in specs:
            keys.append(spec.key)
            self.submit(spec)
        while self.busy:
            self.wait()
        return tuple(self._finished[key] for key in keys)

    def recall(self, key: str) -> TrialRecord:
        """Return a finished trial by its key, counting it when this process has not seen it yet."""
        if all(record.spec.key != key for record in self.records):
            return self._keep(self._finished[key], reused=True)
        return self._finished[key]

    def steps_of(self, record: TrialRecord) -> list[StepRecord]:
        """Return the step records of a finished trial."""
        return RunDirectory.open(self._trials / record.directory).read_steps()

    def survey(self) -> Survey:
        """Let a worker look which checkpoints can be used.

        Raises:
            CheckpointError: If there is no good one.
            StabexpError: If the training cannot even be set up any more.
        """
        result = self._ask({"survey": True})
        if isinstance(result, WorkerFailure) and result.exit_code is not None:
            result = self._ask({"survey": True})  # it was killed from outside; once can happen
        if isinstance(result, WorkerFailure):
            raise error_of(result) or StabexpError(f"{result.message}\n{result.log}".rstrip())
        return from_json(Survey, result)

    def _ask(self, job: dict[str, Any]) -> dict[str, Any] | WorkerFailure:
        self.pool.submit(job)
        return self.pool.wait()[1]


def error_of(failure: WorkerFailure) -> StabexpError | None:
    """Return the error of ours that a job raised, None for any other and for a dead worker."""
    found = re.search(r"\bstabexp\.errors\.(\w+): (.*)", failure.message, re.DOTALL)
    if failure.exit_code is not None or found is None:
        return None
    kind: type[StabexpError] = getattr(errors, found[1])
    return kind(found[2])


def _give_up(trial: RunDirectory) -> None:
    with suppress(TrackingError):  # the disk may be full, which is what is being told
        trial.finish("FAILED")


def read_trials(bisect: RunDirectory) -> tuple[TrialRecord, ...]:
    """Return the finished trials of a bisect, in the order in which they finished."""
    found = [
        child.read_record(TrialRecord, RECORD)
        for child in bisect.children()
        if (child.path / RECORD).exists()
    ]
    return tuple(sorted(found, key=lambda record: record.number))


def finished_trial(trials: Path, key: str) -> RunDirectory | None:
    """Return the directory of the trial with this key that ran to its end, None when none did."""
    for file in trials.glob(f"{key}*/{RECORD}"):
        return RunDirectory.open(file.parent)
    return None
