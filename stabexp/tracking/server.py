"""MLflow's own server on a database file, started the quick way and ended with all its children.

MLflow's default start takes half a minute, four workers and a job queue; one worker is enough for
one reader, and answers after some seconds.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from stabexp.errors import StabexpError, TrackingError

_PORTS = 50
_START_SECONDS = 180.0
_QUICK = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
_OLD_SCHEMA = "out-of-date database schema"


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and a request to end set, so that the server ends with us."""
    event = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in wanted}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port(port: int) -> int:
    """Return the first free port from this one on; any free one for 0."""
    for candidate in range(port, min(port + _PORTS, 65_536)):
        with suppress(OSError), socket.create_server(("127.0.0.1", candidate)) as probe:
            return int(probe.getsockname()[1])
    raise StabexpError(
        f"ports {port} to {port + _PORTS - 1} are all in use; choose one with --port"
    )


def started(
    store: Path, artifacts: Path, port: int, *, log: Path, stop: threading.Event, upgrade: bool
) -> subprocess.Popen[bytes] | None:
    """Return the server once it answers; None when it was stopped before.

    Raises:
        TrackingError: If it ends, or does not answer in time.
    """
    server = _start(store, artifacts, port, log=log)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not stop.is_set() and time.monotonic() < deadline:
            if server.poll() is not None:
                break
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2),
            ):
                return server
            stop.wait(0.2)
    except BaseException:
        end(server)
        raise
    end(server)
    if stop.is_set():
        return None
    text = tail(log)
    if _OLD_SCHEMA not in text:
        raise TrackingError(f"{store}: MLflow did not start:\n{text}")
    if not upgrade:
        raise TrackingError(
            f"{store}: was written by an older MLflow; bring it up to date with: "
            f"mlflow db upgrade sqlite:///{store.absolute()}"
        )
    with open(log, "wb") as file:
        command = [sys.executable, "-m", "mlflow", "db", "upgrade", f"sqlite:///{store}"]
        subprocess.run(command, stdout=file, stderr=file, env=_environment(), check=False)
    return started(store, artifacts, port, log=log, stop=stop, upgrade=False)


def _start(store: Path, artifacts: Path, port: int, *, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{store.absolute()}"]
    command += ["--artifacts-destination", str(artifacts)]
    command += ["--allowed-hosts", "127.0.0.1:*,localhost:*,127.0.0.1,localhost"]
    with open(log, "wb") as file:
        # A group of its own, so that its children end with it and Ctrl-C reaches only us.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=_environment(),
            process_group=0,
        )


def _environment() -> Mapping[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    return kept | _QUICK


def end(server: subprocess.Popen[bytes]) -> None:
    """End the server and its children, by force if they do not go."""
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)
            break
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-15:])
