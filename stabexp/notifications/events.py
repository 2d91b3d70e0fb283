"""What happened to a run, read from the files of its directory.

An event's id follows from what happened, not from when it was seen: whoever reads the files again
finds the same ids, so a receiver can drop what comes twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stabexp.errors import StabexpError
from stabexp.notifications.targets import EventName
from stabexp.records import Recovery, StepRecord, Verdict
from stabexp.tracking import RunDirectory
from stabexp.tracking.journal import read_lines
from stabexp.tracking.processes import is_alive
from stabexp.tracking.step_log import decode_step

RECOVERY = "recovery.json"

_TAIL = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, as it is sent."""

    id: str
    """16 hexadecimal digits, the same whenever it is told."""
    event: EventName
    time: float
    """Unix seconds at which it was noticed."""
    run_id: str
    experiment: str
    """The MLflow experiment the run is in."""
    step: int | None = None
    status: str = ""
    """Of an end: finished, diverged, failed or killed; of a recovery: running, recovered or
    gave_up."""
    message: str = ""
    """What happened, in a sentence."""
    cause: str = ""
    confidence: float | None = None
    summary: str = ""
    """A verdict in one sentence."""
    fix: Mapping[str, Any] = field(default_factory=dict)
    """Experiment keys to change."""
    next_command: str = ""
    """What to type next."""
    report: str = ""
    """The report's file, where there is one."""
    directory: str = ""
    host: str = ""
    """The machine it happened on."""


@dataclass
class Happenings:
    """Everything that has happened to one run; what has not changed is not read again."""

    directory: RunDirectory
    _seal: tuple[Any, ...] = ()
    _found: list[Event] = field(default_factory=list)

    def read(self, now: float) -> list[Event]:
        """Return all events so far, in the order of their kinds; `now` is the time of new ones."""
        seal = self._changes()
        if seal != self._seal:
            self._found = list(_all(self.directory, now))
            self._seal = seal
        return self._found

    def _changes(self) -> tuple[Any, ...]:
        path = self.directory.path
        names = ("run.json", "divergence.json", "events.jsonl", "outbox.jsonl", RECOVERY)
        files = [path / name for name in names]
        files += sorted(path.glob("bisects/*/verdict.json"))
        states: list[Any] = [is_alive(self.directory.manifest.writer)]
        for file in files:
            with suppress(OSError):
                state = file.stat()
                states.append((str(file), state.st_mtime_ns, state.st_size))
        return tuple(states)


def settled(directory: RunDirectory) -> bool:
    """Whether nothing more is to come by itself: it is over, and nobody looks into it."""
    if is_at_work(directory):
        return False
    with suppress(StabexpError):
        if any(child.kind == "bisect" and is_at_work(child) for child in directory.children()):
            return False
    recovery = _recovery(directory)
    return recovery is None or recovery.status != "running"


def is_at_work(directory: RunDirectory) -> bool:
    return directory.status() == "RUNNING" and is_alive(directory.manifest.writer)


def _all(directory: RunDirectory, now: float) -> Iterator[Event]:
    """Yield every event; a file that is damaged hides its own events only."""
    directory = RunDirectory.open(directory.path)
    for part in (_noticed, _divergence, _end, _verdicts, _recovered):
        with suppress(StabexpError, OSError):
            yield from part(directory, now)


def _event(directory: RunDirectory, name: EventName, what: str, **known: Any) -> Event:
    seed = f"{directory.run_id}\n{directory.created!r}\n{name}\n{what}"
    return Event(
        id=hashlib.sha256(seed.encode()).hexdigest()[:16],
        event=name,
        run_id=directory.run_id,
        experiment=directory.manifest.experiment,
        directory=str(directory.path),
        host=directory.manifest.writer.rsplit(":", 2)[0],
        **known,
    )


def _noticed(directory: RunDirectory, now: float) -> Iterator[Event]:
    """Yield warnings, and the first alarm of each kind."""
    told: set[str] = set()
    for event in directory.read_events():
        step, message = event.get("step"), str(event.get("message", ""))
        known = {"time": now, "step": step, "message": message}
        if "alarm" in event and event["alarm"] not in told:
            told.add(event["alarm"])
            command = _command(directory, "diagnose")
            yield _event(directory, "alarm", str(event["alarm"]), **known, next_command=command)
        elif event.get("what") == "warning":
            what = f"{event.get('kind')}:{step}"
            command = _command(directory, "warn")
            yield _event(directory, "warning", what, **known, next_command=command)


def _divergence(directory: RunDirectory, now: float) -> Iterator[Event]:
    found = directory.divergence()
    if found is not None:
        yield _event(
            directory,
            "divergence",
            str(found.detected),
            time=now,
            step=found.detected,
            message=f"{found.pattern.replace('_', ' ')}, onset {found.onset}: {found.message}",
            next_command=_command(directory, "bisect"),
        )


def _verdicts(directory: RunDirectory, now: float) -> Iterator[Event]:
    for child in directory.children():
        if child.kind != "bisect" or not (child.path / "verdict.json").exists():
            continue
        verdict = child.read_record(Verdict, "verdict.json")
        report = child.path / "report" / "verdict.html"
        yield _event(
            directory,
            "verdict",
            child.run_id,
            time=now,
            step=verdict.divergence.detected,
            message=verdict.summary,
            cause=verdict.cause,
            confidence=verdict.confidence,
            summary=verdict.summary,
            fix=verdict.fix,
            next_command=verdict.next_command,
            report=str(report) if report.exists() else "",
        )


def _recovered(directory: RunDirectory, now: float) -> Iterator[Event]:
    found = _recovery(directory)
    if found is None:
        return
    for action in found.actions:
        if action.outcome != "running":
            yield _event(
                directory,
                "recovery",
                f"{action.number}:{action.run_id}:{action.remedy}:{action.outcome}",
                time=now,
                step=action.from_step,
                status="running",
                message=f"rollback {action.number} to step {action.from_step} with "
                f"{action.remedy.replace('_', ' ')}: {action.outcome.replace('_', ' ')}",
                fix=action.settings,
            )
    if found.status != "running":
        yield _event(
            directory,
            "recovery",
            f"end:{found.status}:{found.final_run}:{found.rollbacks}",
            time=now,
            step=found.steps - 1 if found.steps else None,
            status=found.status,
            message=found.summary,
            cause=found.verdict,
            next_command=found.next_command,
        )


def _end(directory: RunDirectory, now: float) -> Iterator[Event]:
    life, status = 1, "RUNNING"
    for line in read_lines(directory.path / "outbox.jsonl"):
        if line.value.get("op") == "status":
            status = line.value["status"]
            life += status == "RUNNING"
    if status == "RUNNING":
        if is_alive(directory.manifest.writer):
            return
        status = "KILLED"
    diverged = (directory.path / "divergence.json").exists()
    word = "diverged" if diverged and status == "FAILED" else status.lower()
    last = _last_step(directory.path / "steps.jsonl")
    next_command = {
        "diverged": _command(directory, "bisect"),
        "failed": _command(directory, "run --resume"),
        "killed": _command(directory, "run --resume"),
    }.get(word, "")
    yield _event(
        directory,
        "end",
        str(life),
        time=now,
        step=last.step if last else None,
        status=word,
        message=_ended(directory, word, last),
        next_command=next_command,
    )


def _ended(directory: RunDirectory, status: str, last: StepRecord | None) -> str:
    steps = last.step + 1 if last else 0
    loss = f", loss {last.loss:.5g}" if last and math.isfinite(last.loss) else ""
    if status == "finished":
        return f"trained {steps:,} steps{loss}"
    if status == "failed":
        with suppress(StabexpError, KeyError, TypeError):
            error = directory.read_json("error.json")
            return f"failed after {steps:,} steps: {error['type']}: {error['message']}"
    return f"{status} after {steps:,} steps{loss}"


def _recovery(directory: RunDirectory) -> Recovery | None:
    if not (directory.path / RECOVERY).exists():
        return None
    with suppress(StabexpError):
        return directory.read_record(Recovery, RECOVERY)
    return None


def _last_step(path: Path) -> StepRecord | None:
    """Return the latest record without reading the whole log."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for raw in reversed(lines[-2:]):  # the last one may say that the run went back
        with suppress(ValueError, TypeError, AttributeError):
            return decode_step(json.loads(raw))
    return None


def _command(directory: RunDirectory, command: str) -> str:
    """Return a command about a run as it is typed where the run was started."""
    root = directory.path.parent.parent
    usual = Path(directory.manifest.working_directory) / "stabexp_runs"
    option = "" if root == usual else f" --root {shlex.quote(str(root))}"
    verb, _, more = command.partition(" ")
    return " ".join(f"stabexp {verb}{option} {more} {directory.run_id}".split())
