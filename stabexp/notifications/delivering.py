"""Brings events to receivers: in order, each receiver by itself, again and again where it helps."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stabexp.errors import BusyError
from stabexp.notifications.events import Event, Happenings
from stabexp.notifications.ledger import Ledger, read_targets
from stabexp.notifications.sending import Answer, send
from stabexp.notifications.targets import EventTarget
from stabexp.notifications.wording import payload
from stabexp.tracking import RunDirectory, exclusive

LOCK = "notify.lock"
"""In a run directory: held by the process that tells of it."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds until the next try; they double each time."""

COMMAND_TRIES = 3
"""Tries of a command in one process: what fails three times will not help by itself."""

Send = Callable[[EventTarget, Event], Answer]


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of one pass."""

    arrived: int = 0
    left: int = 0
    """Still to be sent."""
    problem: str = ""
    """The last reason why something did not arrive."""


class Lane:
    """One receiver: one try at a time, the events in order."""

    def __init__(self, target: EventTarget, ledger: Ledger, sending: Send) -> None:
        self.target = target
        self._ledger, self._sending = ledger, sending
        self._parked: set[str] = set()
        """Events that are not tried again by this process."""
        self._tries: dict[str, int] = {}
        self._next = 0.0
        self._going: tuple[threading.Thread, Event, list[tuple[Answer, float]]] | None = None

    @property
    def busy(self) -> bool:
        """Whether a try is going on."""
        return self._going is not None

    @property
    def done(self) -> bool:
        """Whether nothing is left that this process would try."""
        return not self.busy and not self._waiting()

    def step(self, now: float) -> None:
        """Take in what a try brought, and begin the next one when it is due; never waits."""
        if self._going is not None:
            thread, event, found = self._going
            if thread.is_alive():
                return
            self._going = None
            self._ended(event, found[0][0], now, seconds=found[0][1])
        waiting = self._waiting()
        if waiting and now >= self._next:
            event, found = waiting[0], []
            thread = threading.Thread(target=self._try, args=(event, found), daemon=True)
            self._going = (thread, event, found)
            thread.start()

    def _try(self, event: Event, found: list[tuple[Answer, float]]) -> None:
        begun = time.monotonic()
        answer = self._sending(self.target, event)
        found.append((answer, time.monotonic() - begun))

    def _waiting(self) -> list[Event]:
        return [e for e in self._ledger.pending(self.target) if e.id not in self._parked]

    def _ended(self, event: Event, answer: Answer, now: float, *, seconds: float) -> None:
        attempt = self._ledger.attempts(event, self.target) + 1
        self._ledger.record(event, self.target, answer, attempt=attempt, seconds=seconds)
        tries = self._tries[event.id] = self._tries.get(event.id, 0) + 1
        if answer.arrived:
            self._next = now
            return
        worn_out = self.target.command is not None and tries >= COMMAND_TRIES
        if worn_out or not answer.again:
            self._parked.add(event.id)
            self._next = now
            return
        pause = min(FIRST_PAUSE * 2 ** (tries - 1), LONGEST_PAUSE)
        self._next = now + max(pause, answer.after)


@dataclass
class Teller:
    """All that is to be told of one run directory, by this process alone."""

    directory: RunDirectory
    targets: Sequence[EventTarget]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        self.ledger = Ledger.read(self.directory.path)
        self._happenings = Happenings(self.directory)
        self._lanes = [Lane(target, self.ledger, self.send) for target in self.targets]

    def notice(self) -> None:
        """Write down what has happened since."""
        self.ledger.note(self._happenings.read(time.time()), self.targets)

    def send(self, target: EventTarget, event: Event) -> Answer:
        """Try once to tell a receiver of an event."""
        return send(
            target,
            payload(event, self.directory),
            environment=self.environment,
            folder=Path(self.directory.manifest.working_directory or self.directory.path),
        )

    def step(self) -> None:
        """Go on with every receiver; never waits."""
        now = time.monotonic()
        for lane in self._lanes:
            lane.step(now)

    @property
    def done(self) -> bool:
        """Whether nothing is left that this process would try."""
        return all(lane.done for lane in self._lanes)

    @property
    def busy(self) -> bool:
        """Whether a try is going on."""
        return any(lane.busy for lane in self._lanes)

    def pending(self) -> int:
        """Return how many deliveries are left."""
        return sum(len(self.ledger.pending(target)) for target in self.targets)


def deliver_now(path: Path, *, newer_than: float = 0.0) -> Delivered:
    """Send what a run's receivers have not got yet, each event once, and return when it is done.

    Args:
        path: A run directory.
        newer_than: Unix seconds; what happened before is left as it is.

    Raises:
        BusyError: If another process is telling of this run.
        TrackingError: If a file of it is damaged.
    """
    targets = read_targets(path)
    if not targets:
        return Delivered()
    with exclusive(path / LOCK):
        teller = Teller(RunDirectory.open(path), targets)
        teller.notice()
        arrived, problem = 0, ""
        for target in targets:
            for event in teller.ledger.pending(target):
                if event.time < newer_than:
                    continue
                begun = time.monotonic()
                answer = teller.send(target, event)
                attempt = teller.ledger.attempts(event, target) + 1
                teller.ledger.record(
                    event, target, answer, attempt=attempt, seconds=time.monotonic() - begun
                )
                arrived += answer.arrived
                if not answer.arrived:
                    problem = f"{target.shown}: {answer.text}"
                    break  # the order is kept: the next ones wait for this one
        return Delivered(arrived=arrived, left=teller.pending(), problem=problem)


def deliver_others(root: Path, *, but: str, newer_than: float) -> None:
    """Send what other runs below a root could not send, as far as nobody is at it."""
    for file in sorted((root / "runs").glob("*/on_event.json")):
        if file.parent.name != but:
            try:
                deliver_now(file.parent, newer_than=newer_than)
            except BusyError:
                continue
