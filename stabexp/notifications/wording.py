"""An event as JSON, as the variables of a command, as plain text, and as a chat reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from stabexp.notifications.events import Event
from stabexp.records import to_json
from stabexp.tracking import RunDirectory, web_url
from stabexp.tracking.upload_state import read_upload

VERSION = 1
"""Of the payload: keys may be added to it, but none changes its meaning."""


LONGEST_VARIABLE = 8000
"""Characters of a variable: the system takes only so many, and all is on standard input."""


def payload(event: Event, directory: RunDirectory) -> dict[str, Any]:
    """Return everything there is to say, JSON-ready."""
    return {"version": VERSION, **to_json(event), "tracking_url": tracking_url(directory)}


def tracking_url(directory: RunDirectory) -> str:
    """Return the run's page on a tracking server; empty without one, or before it knows the run."""
    uri = directory.manifest.tracking_uri
    state = read_upload(directory.path, uri)
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or not state.store_id:
        return ""
    address = parts.netloc.rpartition("@")[2]  # without a password
    base = urlunsplit((parts.scheme, address, parts.path, "", ""))
    return web_url(base, state.experiment_id or "0", state.store_id)


def variables(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the payload as STABEXP_… variables; what is not known is empty."""
    return {
        f"STABEXP_{_VARIABLES.get(key, key.upper())}": _word(value) for key, value in data.items()
    }


_VARIABLES = {"id": "EVENT_ID"}


def _word(value: Any) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return text.replace("\0", "")[:LONGEST_VARIABLE]


def body(data: Mapping[str, Any], kind: str) -> tuple[bytes, str]:
    """Return what is sent in a format, and its content type."""
    if kind == "text":
        return text(data).encode(), "text/plain; charset=utf-8"
    shown = {"text": _chat(data)} if kind == "slack" else data
    return json.dumps(shown, ensure_ascii=False).encode(), "application/json"


def title(data: Mapping[str, Any]) -> str:
    """Return the event in one line."""
    run, step = data["run_id"], data["step"]
    match data["event"]:
        case "divergence":
            return f"{run}: DIVERGED at step {step}"
        case "verdict":
            return f"{run}: the cause is {data['cause']} (confidence {data['confidence']:.2f})"
        case "warning":
            return f"{run}: warning of a crash to come, at step {step}"
        case "alarm":
            return f"{run}: alarm at step {step}"
        case "recovery":
            return f"{run}: recovery {data['status'].replace('_', ' ')}"
    return f"{run}: {data['status']}"


def _lines(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    fix = ", ".join(f"{key}: {value}" for key, value in data["fix"].items())
    rows = [
        ("", data["message"]),
        ("fix", fix),
        ("next", data["next_command"]),
        ("report", data["report"]),
        ("tracking", data["tracking_url"]),
    ]
    return [(name, " ".join(str(value).split())) for name, value in rows if value]


def text(data: Mapping[str, Any]) -> str:
    """Return the event as a few lines of plain text."""
    lines = [title(data)]
    lines += [f"{name}: {value}" if name else value for name, value in _lines(data)]
    return "\n".join(lines) + "\n"


def _chat(data: Mapping[str, Any]) -> str:
    lines = [f"*{_safe(title(data))}*"]
    for name, value in _lines(data):
        shown = _safe(value)
        if name in {"fix", "next", "report"}:
            shown = f"`{shown.replace('`', chr(39))}`"
        lines.append(f"{name}: {shown}" if name else shown)
    return "\n".join(lines)


def _safe(line: str) -> str:
    """Return a line in which nothing becomes a mention or a link that nobody meant."""
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
