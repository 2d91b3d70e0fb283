"""Opens MLflow's own pages on the store that the runs use, and sends what has not arrived yet.

A store that was moved or cloned, or that may not be written to, is shown from a temporary copy of
its database, so looking at it never changes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stabexp.errors import BusyError, RunNotFoundError, StabexpError, TrackingError
from stabexp.tracking.catalogue import find_run, list_runs
from stabexp.tracking.lock import exclusive
from stabexp.tracking.portable_store import (
    ARTIFACTS,
    DATABASE,
    copy_database,
    is_at_home,
    open_database,
    relocate,
)
from stabexp.tracking.processes import is_alive
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.server import end, free_port, started, stop_signals, tail
from stabexp.tracking.shipping import descendants, pending, ship
from stabexp.tracking.store import UnreachableError
from stabexp.tracking.upload_state import read_upload, read_uploads
from stabexp.tracking.web_view import runs_view_url, saved_view_url, web_url

REPORT = "report/verdict.html"


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
        yield f"{self.run_id}:"
        if self.bisect_id is not None:
            table = saved_view_url(base, self.experiment_id, self.bisect_id)
            charts = saved_view_url(base, self.experiment_id, self.bisect_id, charts=True)
            report = web_url(base, self.experiment_id, self.store_id, artifact=REPORT)
            yield f"  the trials in a table  {table}"
            yield f"  the trials in charts   {charts}"
            yield f"  the report             {report}"
        yield f"  the run                {web_url(base, self.experiment_id, self.store_id)}"
        yield f"  all runs               {runs_view_url(base, self.experiment_id)}"


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
    shown = _look_up(file, run_id and (directory.run_id if directory else run_id))
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stabexp-ui-")))
        artifacts = file.absolute().parent / ARTIFACTS
        store = file
        if copied := not is_at_home(file):
            store = folder / DATABASE
            copy_database(file, store)
            relocate(store, artifacts.as_uri())
        chosen = free_port(port)
        if port and chosen != port:
            say(f"port {port} is in use; taking {chosen}")
        say(f"starting MLflow on {file} (about 10 seconds) ...")
        log = folder / "server.log"
        server = started(store, artifacts, chosen, log=log, stop=stop, upgrade=copied)
        if server is None:
            return 0
        stack.callback(end, server)
        base = f"http://127.0.0.1:{chosen}"
        for line in shown.lines(base) if shown else [base]:
            say(line)
        if copied:
            say("shown from a copy: what you change in these pages is not kept")
        say("press Ctrl-C to stop")
        while not stop.wait(0.5):
            if server.poll() is not None:
                raise TrackingError(f"MLflow ended by itself:\n{tail(log)}")
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
    for line in shown.lines(base):
        say(line)
    return 0


def _look_up(file: Path, run_id: str | None) -> Shown | None:
    """Return the named run as a database knows it; the latest diverged one, else the latest.

    Raises:
        RunNotFoundError: If the database has no such run.
    """
    with open_database(file) as database:
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
                    f"run {run_id}: is not in {file}; if it was recorded, send it with: "
                    "stabexp sync, else leave it out to see all there are"
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
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
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
        problem = read_upload(top.path, directory.manifest.tracking_uri).problem
        reason = problem or "its own uploader is sending it"
    except UnreachableError as error:
        reason = " ".join(str(error).split())
    else:
        reason = "it is being recorded"
    if waiting := pending(directory.path):
        return f"{waiting} {'item waits' if waiting == 1 else 'items wait'}: {reason}"
    return "everything has arrived" + (f", but {refused} refused (see above)" if refused else "")
