"""An event about nothing, to see whether a receiver is reached before it matters."""

from __future__ import annotations

import socket
import time
import uuid
from pathlib import Path
from typing import Any

from stabexp.notifications.events import Event
from stabexp.notifications.targets import EventName
from stabexp.notifications.wording import VERSION
from stabexp.records import to_json


def trial_payload(name: EventName, run: str) -> dict[str, Any]:
    """Return the payload of an event that did not happen, and says so."""
    event = Event(
        id=uuid.uuid4().hex[:16],
        event=name,
        time=time.time(),
        run_id=run,
        experiment="stabexp",
        step=0,
        status="trial",
        message="a trial: nothing happened; stabexp events --try sent this",
        cause="inconclusive" if name == "verdict" else "",
        confidence=0.0 if name == "verdict" else None,
        directory=str(Path.cwd()),
        host=socket.gethostname(),
    )
    return {"version": VERSION, **to_json(event), "tracking_url": ""}
