"""The process that ships a run to MLflow while it trains, at the lowest priority.

`python -m stabexp.tracking.uploader DIRECTORY` ships what is there and ends. With `--follow PID` it
goes on until that process has died or every run in the directory has finished, and all of it has
arrived. A run whose process died without a word is recorded as KILLED.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from stabexp.errors import BusyError, StabexpError, TrackingError
from stabexp.tracking.lock import exclusive
from stabexp.tracking.processes import identity, is_alive
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.shipping import Shipped, descendants, pending, ship
from stabexp.tracking.store import DeniedError, RunStore, UnreachableError
from stabexp.tracking.upload_state import read_upload, write_problem

__all__ = [
    "Shipped",
    "follow",
    "pending",
    "ship",
    "start_uploader",
    "upload_problem",
    "wait_for_upload",
]

_POLL = 0.5
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class Detached(subprocess.Popen[bytes]):
    """A process that outlives this one on purpose, so nobody need wait for it."""

    def __del__(self) -> None:
        """Do not warn that it still runs."""


class NotStarted:
    """In place of the process of a run that is to stay where it is."""

    def poll(self) -> int:
        """Return 0: it is done."""
        return 0


def start_uploader(directory: Path, *, uri: str | None = None) -> Detached | NotStarted:
    """Start a process that follows this one and ships the run directory; its log is upload.log.

    It outlives this process, and Ctrl-C does not reach it. None is started for a run whose
    experiment says `tracking: {upload: false}`.
    """
    run = RunDirectory.open(directory)
    if not _is_sent(run):
        return NotStarted()
    write_problem(run.path, uri or run.manifest.tracking_uri, "")  # this is another try
    command = [sys.executable, "-P", "-m", "stabexp.tracking.uploader", str(run.path)]
    command += ["--uri", uri or run.manifest.tracking_uri, "--follow", str(os.getpid())]
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    with open(run.path / "upload.log", "ab") as log:
        return Detached(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )


def wait_for_upload(directory: Path, timeout: float, *, uri: str | None = None) -> bool:
    """Wait until everything recorded so far has arrived.

    Returns:
        True also when nothing is to be sent; False after `timeout` seconds or at Ctrl-C, and at
        once when nobody listens at the store's address or it does not let us in: the uploader goes
        on either way.
    """
    if not _is_sent(RunDirectory.open(directory)):
        return True
    deadline = time.monotonic() + timeout
    try:
        listening: bool | None = None
        while pending(directory, uri):
            if listening is None:
                listening = _listening(uri or RunDirectory.open(directory).manifest.tracking_uri)
            late = time.monotonic() > deadline
            if not listening or late or upload_problem(directory, uri=uri):
                return False
            time.sleep(0.1)
    except KeyboardInterrupt:
        return False
    return True


def _is_sent(run: RunDirectory) -> bool:
    """Return whether the run that all of it is about is sent by itself."""
    while (parent := run.parent) is not None:
        run = parent
    return run.manifest.upload


def upload_problem(directory: Path, *, uri: str | None = None) -> str:
    """Return why the store did not let the uploader in; empty while nothing is known against it."""
    return read_upload(directory, uri or RunDirectory.open(directory).manifest.tracking_uri).problem


def _listening(uri: str) -> bool:
    """Return whether somebody answers at a server's port; a file is always there.

    What is behind a proxy, only the proxy knows.
    """
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https"} or _has_proxy(parts.scheme, parts.hostname or ""):
        return True
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=2):
            return True
    except (OSError, ValueError):
        return False


def _has_proxy(scheme: str, host: str) -> bool:
    proxies = getproxies()
    return ("all" in proxies or scheme in proxies) and not proxy_bypass(host)


def follow(
    path: Path,
    open_store: Callable[[], RunStore],
    *,
    pid: int | None = None,
    give_up: float = 600.0,
) -> bool:
    """Ship a run directory until there is nothing left to come.

    Args:
        path: The run directory.
        open_store: Opens the store; may raise UnreachableError.
        pid: The process that records the run; None ships what is there.
        give_up: Seconds without an answer after that process has died.

    Returns:
        False if the store did not answer in time; the data stays where it is.

    Raises:
        TrackingError: If, at the end, a file is damaged, or the store refuses the run or who asks.
    """
    process = None if pid is None else identity(pid)
    store: RunStore | None = None
    pause = _FIRST_PAUSE
    silent_since: float | None = None
    with _only_uploader(path):
        while True:
            dead = process is None or not is_alive(process)
            runs = list(descendants(RunDirectory.open(path)))
            if dead:
                _mark_killed(runs)
            finished = all(run.status() != "RUNNING" for run in runs)
            try:
                store = store or open_store()
                ship(path, store)
            except TrackingError as error:
                print(f"next try in {pause:g} s: {error}", file=sys.stderr, flush=True)
                if dead:
                    if isinstance(error, DeniedError) or not isinstance(error, UnreachableError):
                        raise
                    silent_since = silent_since or time.monotonic()
                    if time.monotonic() - silent_since > give_up:
                        return False
                _rest(pause, while_alive=None if dead else process)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            silent_since = None
            if dead or (finished and not pending(path, store.uri)):
                return True
            time.sleep(_POLL)


def _rest(seconds: float, *, while_alive: str | None) -> None:
    """Sleep, but not on when a process has died: then another try is worth while at once."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if while_alive is not None and not is_alive(while_alive):
            return
        time.sleep(min(_POLL, left))


def _mark_killed(runs: list[RunDirectory]) -> None:
    """Record the end of the runs whose own process died; another may still work on the rest."""
    for run in runs:
        if run.status() == "RUNNING" and not is_alive(run.manifest.writer):
            run.finish("KILLED")


@contextmanager
def _only_uploader(path: Path) -> Iterator[None]:
    """Wait for any other uploader of the same run, its bisects and trials; keep others waiting."""
    top = RunDirectory.open(path)
    while (parent := top.parent) is not None:
        top = parent
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive(top.path / "upload.lock"))
                break
            except BusyError:
                time.sleep(_POLL)
        yield


def main() -> int:
    """Run the uploader from the command line."""
    parser = argparse.ArgumentParser(prog="stabexp.tracking.uploader", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--uri", help="the MLflow store; default: the one the run names")
    parser.add_argument(
        "--follow", type=int, metavar="PID", help="the process that records the run"
    )
    parser.add_argument("--give-up", type=float, default=600.0, metavar="SECONDS")
    arguments = parser.parse_args()
    os.nice(19)
    # MLflow's own retries block for four minutes; ours can be watched in the log.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

    def open_store() -> RunStore:
        # MLflow takes a second and 150 MB to load: not for a server that is not there.
        if not _listening(uri):
            raise UnreachableError(f"{uri}: nobody listens there")
        from stabexp.tracking.mlflow_store import MlflowStore

        return MlflowStore(uri)

    try:
        uri = arguments.uri or RunDirectory.open(arguments.directory).manifest.tracking_uri
        arrived = follow(
            arguments.directory, open_store, pid=arguments.follow, give_up=arguments.give_up
        )
    except StabexpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if not arrived:
        print(
            f"error: the store did not answer; {pending(arguments.directory, uri)} lines are still "
            f"only in {arguments.directory}. Start this again later",
            file=sys.stderr,
        )
    return 0 if arrived else 1


if __name__ == "__main__":
    sys.exit(main())
