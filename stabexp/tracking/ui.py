"""Opens MLflow's own pages on the store that the runs use, and sends what has not arrived yet.

MLflow's default start takes half a minute and four workers; one worker and no job queue is enough
for one reader. A store that was moved or cloned, or that may not be written to, is shown from a
temporary copy of its database, so looking at it never changes it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from stabexp.errors import BusyError, RunNotFoundError, StabexpError, TrackingError
from stabexp.tracking.catalogue import find_run, list_runs
from stabexp.tracking.lock import exclusive
from stabexp.tracking.portable_store import (
    ARTIFACTS,
    DATABASE,
    copy_database,
    is_at_home,
    make_portable,
    open_database,
)
from stabexp.tracking.processes import is_alive
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.shipping import descendants, pending, ship
from stabexp.tracking.store import UnreachableError
from stabexp.tracking.upload_state import read_uploads
from stabexp.tracking.web_view import saved_view_url, web_url

REPORT = "report/verdict.html"

_PORTS = 50
_START_SECONDS = 180.0
_QUICK = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
_OLD_SCHEMA = "out-of-date database schema"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the pages of one run are called in a store."""

    run_id: str
    experiment_id: str
    store_id: str
    bisect_id: str | None
    """The latest bisect's run in the store, None when there is none yet."""

    def lines(self, base: str) -> Iterator[str]:
        """Yield what to open, most telling first."""
        if self.bisect_id is not None:
            table = saved_view_url(base, self.experiment_id, self.bisect_id)
            charts = saved_view_url(base, self.experiment_id, self.bisect_id, charts=True)
            report = web_url(base, self.experiment_id, self.bisect_id, artifact=REPORT)
            yield f"  the trials in a table  {table}"
            yield f"  the trials in charts   {charts}"
            yield f"  the report             {report}"
        yield f"  the run                {web_url(base, self.experiment_id, self.store_id)}"
        yield f"  all runs               {web_url(base, self.experiment_id)}"


def serve(root: Path, *, run_id: str | None, port: int, say: Callable[[str], None]) -> int:
    """Show a store in the browser until Ctrl-C; for a tracking server, only say where to look.

    Args:
        root: Where the runs are kept, or a folder with mlflow.db and artifacts alone.
        run_id: The run to link to; None takes the latest.
        port: Where to listen on this machine; the next free one is taken when it is in use.
        say: Told what to open.

    Returns:
        The exit code.

    Raises:
        StabexpError: If there is no store yet, or MLflow does not start.
        RunNotFoundError: If the store has no such run.
    """
    directory = _directory(root, run_id)
    uri = directory.manifest.tracking_uri if directory else ""
    if directory is not None and uri.startswith(("http://", "https://")):
        return _say_links(directory, say)
    file = _database(root, uri)
    shown = _look_up(file, directory.run_id if directory else run_id)
    with ExitStack() as stack:
        stop = stack.enter_context(_stop_signals())
        store, upgradable = file, False
        if not is_at_home(file):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stabexp-ui-"))
            store, upgradable = Path(folder) / DATABASE, True
            copy_database(file, store)
            make_portable(store)
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stabexp-ui-"))) / "log"
        chosen = _free_port(port)
        if port and chosen != port:
            say(f"port {port} is in use; taking {chosen}")
        say(f"starting MLflow on {file} (about 10 seconds) ...")
        server = _started(
            store,
            file.absolute().parent / ARTIFACTS,
            chosen,
            log=log,
            stop=stop,
            upgrade=upgradable,
        )
        try:
            if server is not None:
                base = f"http://127.0.0.1:{chosen}"
                say(f"{shown.run_id}:" if shown else base)
                for line in shown.lines(base) if shown else ():
                    say(line)
                if upgradable:
                    say("shown from a copy: what you change in these pages is not kept")
                say("press Ctrl-C to stop")
                while server.poll() is None and not stop.is_set():
                    stop.wait(0.5)
        finally:
            _end(server)
        if server is not None and not stop.is_set():
            raise TrackingError(f"MLflow ended by itself:\n{_tail(log)}")
    return 0


def _directory(root: Path, run_id: str | None) -> RunDirectory | None:
    """Return the run to show, None when the folder holds a database but not this run's files."""
    if run_id is None:
        runs = list_runs(root)
        return runs[-1] if runs else None
    try:
        directory = find_run(run_id, root)
    except RunNotFoundError:
        if (root / DATABASE).exists():
            return None
        raise
    while directory.parent is not None:
        directory = directory.parent
    return directory


def _database(root: Path, uri: str) -> Path:
    """Return the database file of a store that has one: the root's own, else the one named."""
    file = root / DATABASE
    if file.exists():
        return file
    if uri.startswith("sqlite:///"):
        named = Path(uri.removeprefix("sqlite:///"))
        if named.exists():
            return named
        raise StabexpError(
            f"{file}: there is no MLflow store yet; send what was recorded with: "
            f"stabexp sync --root {root}"
        )
    if uri:
        raise StabexpError(f"{uri}: open it with: mlflow server --backend-store-uri {uri}")
    raise StabexpError(
        f"{root.absolute()}: there is no MLflow store yet; make one with: "
        f"stabexp run exp.yaml --root {root}, or name another folder with --root"
    )


def _say_links(directory: RunDirectory, say: Callable[[str], None]) -> int:
    base = directory.manifest.tracking_uri
    own = read_uploads(directory.path).get(base)
    if own is None or own.store_id is None:
        raise StabexpError(
            f"run {directory.run_id}: has not arrived at {base}; send it with: "
            f"stabexp sync {directory.run_id}"
        )
    bisect = None
    for child in directory.children():
        state = read_uploads(child.path).get(base)
        bisect = state.store_id if state and state.store_id else bisect
    shown = Shown(
        run_id=directory.run_id,
        experiment_id=own.experiment_id,
        store_id=own.store_id,
        bisect_id=bisect,
    )
    say(f"{directory.run_id}:")
    for line in shown.lines(base):
        say(line)
    return 0


def _look_up(file: Path, run_id: str | None) -> Shown | None:
    """Return the named run as a database knows it; the latest diverged one, else the latest.

    Raises:
        RunNotFoundError: If the database has no such run.
    """
    with closing(open_database(file)) as database:
        runs = database.execute(
            "select r.run_uuid, r.experiment_id, i.value from runs r "
            "join tags i on i.run_uuid = r.run_uuid and i.key = 'stabexp.run_id' "
            "join tags k on k.run_uuid = r.run_uuid and k.key = 'stabexp.kind' "
            "left join tags v on v.run_uuid = r.run_uuid and v.key = 'stabexp.cause' "
            "where k.value = 'run' and r.lifecycle_stage = 'active' "
            "order by v.value is not null desc, r.start_time desc"
        ).fetchall()
        if run_id is not None:
            runs = [run for run in runs if run[0] == run_id or run[2].startswith(run_id)]
            if not runs:
                raise RunNotFoundError(
                    f"run {run_id}: not found in {file}; leave it out to see all"
                )
        if not runs:
            return None
        store_id, experiment_id, name = runs[0]
        bisects = database.execute(
            "select r.run_uuid from runs r "
            "join tags p on p.run_uuid = r.run_uuid and p.key = 'mlflow.parentRunId' "
            "where p.value = ? and r.lifecycle_stage = 'active' order by r.start_time desc",
            (store_id,),
        ).fetchone()
    return Shown(
        run_id=name,
        experiment_id=str(experiment_id),
        store_id=store_id,
        bisect_id=bisects[0] if bisects else None,
    )


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
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


def _free_port(port: int) -> int:
    """Return the first free port from this one on; any free one for 0."""
    for candidate in range(port, min(port + _PORTS, 65_536)):
        with suppress(OSError), socket.create_server(("127.0.0.1", candidate)) as probe:
            return int(probe.getsockname()[1])
    raise StabexpError(
        f"ports {port} to {port + _PORTS - 1} are all in use; choose one with --port"
    )


def _started(
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
        _end(server)
        raise
    _end(server)
    if stop.is_set():
        return None
    text = _tail(log)
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
    return _started(store, artifacts, port, log=log, stop=stop, upgrade=False)


def _start(store: Path, artifacts: Path, port: int, *, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
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


def _end(server: subprocess.Popen[bytes] | None) -> None:
    """End the server and its children, by force if they do not go."""
    if server is None:
        return
    for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience)
            break
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return "\n".join(lines[-15:])


def send(directory: RunDirectory) -> str:
    """Ship what a run directory and its bisects have pending; return what became of it.

    Raises:
        TrackingError: If a recorded file is damaged.
    """
    from stabexp.tracking.mlflow_store import MlflowStore

    # MLflow's own retries block for four minutes; the command can be given again.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    top = directory
    while (parent := top.parent) is not None:
        top = parent
    refused = 0
    try:
        with exclusive(top.path / "upload.lock"):
            for run in descendants(directory):
                if run.status() == "RUNNING" and not is_alive(run.manifest.writer):
                    run.finish("KILLED")
            if pending(directory.path):
                store = MlflowStore(directory.manifest.tracking_uri)
                refused = ship(directory.path, store).refused
    except BusyError:
        reason = "its own uploader is sending it"
    except UnreachableError as error:
        reason = " ".join(str(error).split())
    else:
        reason = "it is being recorded"
    if waiting := pending(directory.path):
        return f"{waiting} {'item waits' if waiting == 1 else 'items wait'}: {reason}"
    return "everything has arrived" + (f", but {refused} refused (see above)" if refused else "")
