"""A real receiver on this machine, which answers as it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came, and how it answers."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers; then 200."""
    wait: float = 0.0
    """Seconds before each answer."""
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/s3cr3t-path"

    def start(self) -> None:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.received.append(Received(self.path, dict(self.headers), body))
                time.sleep(owner.wait)
                status, headers = owner.answers.pop(0) if owner.answers else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(f"you asked {self.path}".encode())

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: Any) -> None:
                """A sender that gave up is no error."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that listens."""
    made = Receiver()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def down() -> Iterator[Receiver]:
    """A receiver that does not listen until it is started."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        made = Receiver(port=probe.getsockname()[1])
    yield made
    made.stop()


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait until something is the case."""

    def call(condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    return call


@pytest.fixture(autouse=True)
def _no_notifier_left(tmp_path) -> Iterator[None]:
    """End the notifiers and uploaders of this test: they would wait ten minutes for a receiver."""
    yield
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode() if folder.name.isdigit() else ""
            if str(tmp_path) in command and "stabexp." in command:
                os.kill(int(folder.name), signal.SIGKILL)
