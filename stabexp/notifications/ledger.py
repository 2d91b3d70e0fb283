"""What was to be told of a run, to whom, and what came of every try: notifications.jsonl.

Two kinds of lines: {"event": …}, when it was noticed, and {"delivery": …}, after each try. What has
an event and no delivery that arrived is still to be sent, whoever reads the file.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from stabexp.errors import TrackingError
from stabexp.notifications.events import Event
from stabexp.notifications.sending import Answer
from stabexp.notifications.targets import EventTarget
from stabexp.records import from_json, to_json
from stabexp.tracking.journal import append_shared, read_lines
from stabexp.tracking.manifest import read_json, write_json

LEDGER = "notifications.jsonl"
"""In a run directory; there when anything was to be told."""

TARGETS = "on_event.json"
"""In a run directory: who is told, as the experiment says; no secret is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One try to tell one receiver of one event."""

    id: str
    """The event's."""
    target: str
    """The receiver's key."""
    to: str
    """What it is called."""
    attempt: int
    time: float
    """Unix seconds at the end of the try."""
    seconds: float
    arrived: bool
    answer: str


@dataclass
class Ledger:
    """The ledger of one run directory, read once and kept up to date by its only writer."""

    path: Path
    events: dict[str, Event] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> Ledger:
        """Return what is written down; a line that is damaged or of another version is skipped."""
        ledger = cls(directory / LEDGER)
        for line in read_lines(ledger.path):
            try:
                if "event" in line.value:
                    event = from_json(Event, line.value["event"])
                    ledger.events.setdefault(event.id, event)
                elif "delivery" in line.value:
                    ledger.deliveries.append(from_json(Delivery, line.value["delivery"]))
            except pydantic.ValidationError:
                continue
        return ledger

    def note(self, events: Iterable[Event], targets: Sequence[EventTarget]) -> None:
        """Write down events that are new and that somebody is to be told of."""
        wanted = {name for target in targets for name in target.on}
        for event in events:
            if event.id not in self.events and event.event in wanted:
                append_shared(self.path, {"event": to_json(event)}, durable=True)
                self.events[event.id] = event

    def record(
        self, event: Event, target: EventTarget, answer: Answer, *, attempt: int, seconds: float
    ) -> Delivery:
        """Write down what came of a try."""
        delivery = Delivery(
            id=event.id,
            target=target.key,
            to=target.shown,
            attempt=attempt,
            time=time.time(),
            seconds=round(seconds, 3),
            arrived=answer.arrived,
            answer=answer.text,
        )
        append_shared(self.path, {"delivery": dataclasses.asdict(delivery)}, durable=True)
        self.deliveries.append(delivery)
        return delivery

    def pending(self, target: EventTarget) -> list[Event]:
        """Return what a receiver is still to be told, in the order it happened."""
        arrived = {
            each.id for each in self.deliveries if each.arrived and each.target == target.key
        }
        return [
            event
            for event in self.events.values()
            if event.event in target.on and event.id not in arrived
        ]

    def attempts(self, event: Event, target: EventTarget) -> int:
        """Return how often it was tried."""
        return sum(d.id == event.id and d.target == target.key for d in self.deliveries)


def write_targets(directory: Path, targets: Sequence[EventTarget]) -> None:
    """Keep who is told, for whoever sends what is left."""
    write_json(directory / TARGETS, [target.model_dump(mode="json") for target in targets])


def read_targets(directory: Path) -> list[EventTarget]:
    """Return who is told of a run; nobody where nothing was asked for."""
    file = directory / TARGETS
    if not file.exists():
        return []
    try:
        return pydantic.TypeAdapter(list[EventTarget]).validate_python(read_json(file))
    except pydantic.ValidationError:
        raise TrackingError(
            f"{file}: damaged, or from another version; restore it from a copy, or delete it"
        ) from None


def plain(delivery: Delivery, event: Event | None) -> Mapping[str, Any]:
    """Return a delivery for people and programs: with what it was about."""
    return {"event": event.event if event else "", **dataclasses.asdict(delivery)}
