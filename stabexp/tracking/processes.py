"""Whether the process that wrote something still lives, even when its number was given again."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def identity(pid: int | None = None) -> str:
    """Return "host:pid:start time" of a process, this one by default; the time may be missing."""
    number = os.getpid() if pid is None else pid
    state = _state(number)
    return f"{socket.gethostname()}:{number}:{state[1] if state else ''}"


def is_alive(name: str) -> bool:
    """Return whether the process with this identity runs; True when it ran on another machine."""
    host, number, started = name.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state = _state(int(number))
    if state is None:
        return True
    return state[0] not in {"Z", "X"} and started in {"", state[1]}


def _state(pid: int) -> tuple[str, str] | None:
    """Return the state letter and the start time in clock ticks, None where there is no /proc."""
    try:
        # The name of the program, in parentheses, may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]
