"""One try to reach a receiver: a POST or a command, each with an end in time.

What comes back says whether it arrived, whether another try is worth while, and what was answered,
without any secret in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import stabexp
from stabexp.notifications.secrets import Secrets, UnsetError
from stabexp.notifications.targets import EventTarget
from stabexp.notifications.wording import body, variables

ANSWER_LIMIT = 500
"""Characters that are kept of what a receiver answered."""

GRACE_SECONDS = 2.0
"""How long a command that is to end may take for it before it is killed."""

_LATER = {408, 425, 429}
"""Client errors that mean: try again later."""
_SAME_PLACE = {301, 302, 307, 308}
_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one try."""

    arrived: bool
    text: str
    """Status and answer, or what went wrong."""
    again: bool = True
    """Whether another try may help without anybody doing something about it."""
    after: float = 0.0
    """Seconds that the receiver asked to wait."""


def send(
    target: EventTarget,
    data: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    folder: Path,
) -> Answer:
    """Try once to tell a receiver of an event; takes little more than the target's timeout.

    Args:
        target: Whom to tell.
        data: The event's payload.
        environment: What `${NAME}` is looked up in, and what a command gets.
        folder: Where a command runs.
    """
    secrets = Secrets(environment)
    try:
        if target.webhook is not None:
            answer = _post(target, data, secrets)
        else:
            answer = _run(target, data, secrets, folder)
    except UnsetError as error:
        return Answer(False, str(error), again=False)
    except Exception as error:  # whatever it is, it must not end the process that tells others
        answer = Answer(False, f"{type(error).__name__}: {error}")
    shown = " ".join(secrets.hidden(answer.text, target.names).split())[:ANSWER_LIMIT]
    return Answer(answer.arrived, shown, answer.again, answer.after)


def _post(target: EventTarget, data: Mapping[str, Any], secrets: Secrets) -> Answer:
    assert target.webhook is not None
    address = secrets.resolved(target.webhook)
    if urlsplit(address).scheme not in {"http", "https"}:
        return Answer(False, "not an http address", again=False)
    content, content_type = body(data, target.format)
    headers = {
        "Content-Type": content_type,
        "User-Agent": f"stabexp/{stabexp.__version__}",
        "Idempotency-Key": str(data["id"]),
        "X-Stabexp-Event": str(data["event"]),
    }
    headers |= {name: secrets.resolved(value) for name, value in target.headers.items()}
    found: list[Answer] = []

    def ask() -> None:
        try:
            found.append(_asked(address, content, headers, target.timeout))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            found.append(Answer(False, f"not reached: {type(reason).__name__}: {reason}"))

    # A thread, because a receiver that sends a byte now and then never times out by itself.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(target.timeout)
    return found[0] if found else Answer(False, f"no answer within {target.timeout:g} s")


def _asked(address: str, content: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
    opener = urllib.request.build_opener(_NoRedirects)
    place = address
    for _ in range(_REDIRECTS + 1):
        request = urllib.request.Request(place, content, dict(headers), method="POST")
        try:
            with opener.open(request, timeout=timeout) as answer:
                return Answer(True, f"{answer.status} {_read(answer)}".strip())
        except urllib.error.HTTPError as error:
            with error:
                text = f"{error.code} {_read(error)}".strip()
                goes_to = error.headers.get("Location", "")
                wait = error.headers.get("Retry-After", "")
            if error.code in _SAME_PLACE and goes_to:
                place = urljoin(place, goes_to)
                if not _same_host(address, place):
                    return Answer(False, f"{error.code}: leads to another host", again=False)
                continue
            later = error.code >= 500 or error.code in _LATER
            seconds = float(wait) if wait.isdigit() else 0.0
            return Answer(False, text, again=later, after=min(seconds, 3600.0))
    return Answer(False, f"more than {_REDIRECTS} redirects", again=False)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The library's own would send the event anywhere, and as a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _same_host(one: str, other: str) -> bool:
    first, second = urlsplit(one), urlsplit(other)
    safe = first.scheme == second.scheme or (first.scheme, second.scheme) == ("http", "https")
    if first.scheme == second.scheme and first.port != second.port:
        return False
    return safe and first.hostname == second.hostname


def _read(answer: Any) -> str:
    data: bytes = answer.read(4 * ANSWER_LIMIT)
    return data.decode("utf-8", "replace")


def _run(target: EventTarget, data: Mapping[str, Any], secrets: Secrets, folder: Path) -> Answer:
    command = target.command
    assert command is not None
    arguments: list[str] = (
        ["/bin/sh", "-c", command]
        if isinstance(command, str)
        else [secrets.resolved(word) for word in command]
    )
    content, _ = body(data, target.format)
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=folder if folder.is_dir() else None,
                env={**secrets.environment, **variables(data)},
                start_new_session=True,
            )
        except OSError as error:
            return Answer(False, f"cannot be started: {error.strerror}", again=False)
        ended_by_us = False
        try:
            process.communicate(content, timeout=target.timeout)
        except subprocess.TimeoutExpired:
            ended_by_us = True
            _end(process)
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - 4 * ANSWER_LIMIT))
        text = said.read().decode("utf-8", "replace").strip()[-ANSWER_LIMIT:]
    if ended_by_us:
        return Answer(False, f"ended after {target.timeout:g} s; {text}".rstrip("; "))
    return Answer(process.returncode == 0, f"exit code {process.returncode} {text}".strip())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and whatever it started that is still in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError):  # also those that outlived it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
