"""Tells somebody what happened to a run: a web address, or a command of the user's own.

A process of its own watches the run directory, as the uploader does, so nothing of it is on the
training thread. What happened follows from the files alone: whoever looks later finds the same
events with the same ids, and sends what has not been delivered.
"""

from __future__ import annotations

from stabexp.notifications.delivering import Delivered, deliver_now
from stabexp.notifications.events import Event
from stabexp.notifications.ledger import LEDGER, TARGETS, read_targets
from stabexp.notifications.start import start_notifier, unset_names
from stabexp.notifications.targets import EVENT_NAMES, EventName, EventTarget, Targets

__all__ = [
    "EVENT_NAMES",
    "LEDGER",
    "TARGETS",
    "Delivered",
    "Event",
    "EventName",
    "EventTarget",
    "Targets",
    "deliver_now",
    "read_targets",
    "start_notifier",
    "unset_names",
]
