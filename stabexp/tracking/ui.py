"""Opens MLflow's own pages on the store that the runs use, and sends what has not arrived yet.

A store that was moved or cloned, or that may not be written to, is shown from a temporary copy of
its database, so looking at it never changes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stabexp.errors import BusyError, RunNotFoundError, StabexpError, TrackingError
from stabexp.tracking.catalogue import find_run, list_runs
from stabexp.tracking.lock import exclusive
from stabexp.tracking.pages import Shown, in_database, on_server, open_page
from stabexp.tracking.portable_store import (
    ARTIFACTS,
    DATABASE,
    copy_database,
    is_at_home,
    relocate,
)
from stabexp.tracking.processes import is_alive
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.server import end, free_port, started, stop_signals, tail
from stabexp.tracking.shipping import descendants, pending, ship
from stabexp.tracking.store import UnreachableError
from stabexp.tracking.upload_state import read_upload


def serve(
    root: Path,
    *,
    run_id: str | None,
    port: int,
    say: Callable[[str], None],
    browse: bool = False,
    tell: Callable[[dict[str, Any]], None] | None = None,
) -> int:
    """Show a store in the browser until Ctrl-C; of a tracking server, only its pages.

    Args:
        root: Where the runs are kept, or a folder with mlflow.db and artifacts alone.
        run_id: The run, bisect or trial to open; None opens the list of all runs.
        port: Where to listen on this machine; the next free one is taken when it is in use.
        say: Told what to open.
        browse: Whether to open the page in the default browser, where there is a screen.
        tell: Given all addresses as JSON-ready values once they answer, in place of `say`.

    Returns:
        The exit code.

    Raises:
        StabexpError: If there is no store yet, or MLflow does not start.
        RunNotFoundError: If the store has no such run.
    """
    directory = _directory(root, run_id)
    uri = directory.manifest.tracking_uri if directory else ""

    def announce(shown: Shown | None, base: str, *, copied: bool = False) -> None:
        links = shown.links(base) if shown else {"all runs": base}
        page = shown.page(base) if shown else base
        if tell is not None:
            tell({"open": page, "links": links, "server": base, "copied": copied})
            return
        for line in shown.lines(base) if shown else [base]:
            say(line)
        if browse and open_page(page):
            say(f"opening {page}")

    if directory is not None and uri.startswith(("http://", "https://")):
        announce(on_server(directory, listed=run_id is None), uri)
        return 0
    file = _database(root, uri)
    shown = in_database(file, _wanted(directory, run_id))
    quiet = tell is not None
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
        if port and chosen != port and not quiet:
            say(f"port {port} is in use; taking {chosen}")
        if not quiet:
            say(f"starting MLflow on {file} (about 10 seconds) ...")
        log = folder / "server.log"
        server = started(store, artifacts, chosen, log=log, stop=stop, upgrade=copied)
        if server is None:
            return 0
        stack.callback(end, server)
        announce(shown, f"http://127.0.0.1:{chosen}", copied=copied)
        if copied and not quiet:
            say("shown from a copy: what you change in these pages is not kept")
        if not quiet:
            say("press Ctrl-C to stop")
        while not stop.wait(0.5):
            if server.poll() is not None:
                raise TrackingError(f"MLflow ended by itself:\n{tail(log)}")
    return 0


def _wanted(directory: RunDirectory | None, run_id: str | None) -> str | None:
    """Return the id to look for in the database: a directory's own where there is one."""
    return run_id if run_id is None or directory is None else directory.run_id


def _directory(root: Path, run_id: str | None) -> RunDirectory | None:
    """Return the run, bisect or trial to show; None when the folder holds a database alone."""
    if run_id is None:
        runs = list_runs(root)
        return runs[-1] if runs else None
    try:
        return find_run(run_id, root)
    except RunNotFoundError:
        below = [each for run in list_runs(root) for each in descendants(run)]
        exact = [each for each in below if each.run_id == run_id]
        if exact:
            return exact[0]
        if (root / DATABASE).exists():
            return None
        raise


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
