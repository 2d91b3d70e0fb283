"""Which of MLflow's pages to open for a run, a bisect or a trial, and a browser to open it in."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stabexp.errors import RunNotFoundError, StabexpError
from stabexp.tracking.portable_store import open_database
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.shipping import descendants
from stabexp.tracking.upload_state import read_uploads
from stabexp.tracking.web_view import compare_url, runs_view_url, saved_view_url, web_url

REPORT = "report/verdict.html"
COMPARED = 10
"""Trials on MLflow's comparison page: more columns than a screen has help nobody."""

Subject = Literal["all", "run", "bisect", "trial"]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the pages of one run are called in a store, and which of them was asked for."""

    run_id: str
    """The run's local id."""
    experiment_id: str
    store_id: str
    bisect_id: str | None = None
    """Local id of the bisect shown: the one asked for, else the latest; None without any."""
    trials: tuple[str, ...] = ()
    """Ids in the store of the trials to compare, in the order in which they were made."""
    subject: Subject = "all"
    subject_id: str = ""
    """Id in the store of the trial that was asked for."""

    def links(self, base: str) -> dict[str, str]:
        """Return what to open, most telling first: what it shows → address."""
        found: dict[str, str] = {}
        experiment = self.experiment_id
        if self.subject == "trial":
            found["the trial"] = web_url(base, experiment, self.subject_id)
        if self.bisect_id is not None:
            found["the trials in a table"] = saved_view_url(base, experiment, self.bisect_id)
            found["the trials in charts"] = saved_view_url(
                base, experiment, self.bisect_id, charts=True
            )
            if len(self.trials) > 1:
                found["the trials compared"] = compare_url(base, experiment, self.trials)
            found["the report"] = web_url(base, experiment, self.store_id, artifact=REPORT)
        found["the run"] = web_url(base, experiment, self.store_id)
        found["all runs"] = runs_view_url(base, experiment)
        return found

    def page(self, base: str) -> str:
        """Return the page that was asked for; of a run that was bisected, its trials."""
        links = self.links(base)
        if self.subject == "all":
            return links["all runs"]
        return next(iter(links.values()))

    def lines(self, base: str) -> Iterator[str]:
        """Yield what to say about where to look."""
        yield f"{self.run_id}:"
        links = self.links(base)
        width = max(map(len, links))
        for name, address in links.items():
            yield f"  {name:<{width}}  {address}"


def in_database(file: Path, wanted: str | None) -> Shown | None:
    """Return what to show as a database knows it; the latest diverged run when nothing is wanted.

    Args:
        wanted: A local id, the beginning of a run's, or an MLflow run id.

    Raises:
        RunNotFoundError: If the database has nothing of this name.
    """
    with open_database(file) as database:
        rows = database.execute(
            "select r.run_uuid, r.experiment_id, i.value, k.value, p.value, o.value from runs r "
            "join tags i on i.run_uuid = r.run_uuid and i.key = 'stabexp.run_id' "
            "join tags k on k.run_uuid = r.run_uuid and k.key = 'stabexp.kind' "
            "left join tags p on p.run_uuid = r.run_uuid and p.key = 'mlflow.parentRunId' "
            "left join tags c on c.run_uuid = r.run_uuid and c.key = 'stabexp.cause' "
            "left join tags o on o.run_uuid = r.run_uuid and o.key = 'stabexp.role' "
            "where r.lifecycle_stage = 'active' order by c.value is not null desc, "
            "r.start_time desc"
        ).fetchall()
    entries = [_Entry(*map(_text, row)) for row in rows]
    runs = [entry for entry in entries if entry.kind == "run"]
    if wanted is None:
        return _shown(runs[0], entries, subject="all") if runs else None
    found = [entry for entry in entries if wanted in {entry.store_id, entry.name}]
    found += [entry for entry in runs if entry.name.startswith(wanted)]
    if not found:
        raise RunNotFoundError(
            f"run {wanted}: is not in {file}; if it was recorded, send it with: "
            "stabexp sync, else leave it out to see all there are"
        )
    return _shown(found[0], entries, subject=found[0].kind)


def on_server(directory: RunDirectory, *, listed: bool) -> Shown:
    """Return what to show of a run directory that went to a tracking server.

    Args:
        listed: Whether the list of all runs was asked for, and this is only the latest of them.

    Raises:
        StabexpError: If it has not arrived there.
    """
    base = directory.manifest.tracking_uri
    top = directory
    while (parent := top.parent) is not None:
        top = parent
    entries = []
    ids: dict[Path, str] = {}
    for each in descendants(top):
        state = read_uploads(each.path).get(base)
        if state is None or state.store_id is None:
            continue
        ids[each.path] = state.store_id
        above = each.parent
        entries.append(
            _Entry(
                state.store_id,
                state.experiment_id,
                each.run_id,
                each.kind,
                ids.get(above.path, "") if above else "",
                each.manifest.tags.get("stabexp.role", ""),
            )
        )
    entries.reverse()
    for entry in entries:
        if entry.name == directory.run_id:
            return _shown(entry, entries, subject="all" if listed else entry.kind)
    raise StabexpError(
        f"run {directory.run_id}: has not arrived at {base}; send it with: "
        f"stabexp sync {top.run_id}"
    )


@dataclass(frozen=True)
class _Entry:
    """One run, bisect or trial in a store."""

    store_id: str
    experiment_id: str
    name: str
    kind: str
    parent: str
    role: str


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _shown(entry: _Entry, entries: list[_Entry], *, subject: str) -> Shown:
    """Return the pages around one entry; `entries` are the latest first."""
    by_id = {each.store_id: each for each in entries}
    bisect = None
    top = entry
    while top.kind != "run" and (above := by_id.get(top.parent)) is not None:
        bisect = top if top.kind == "bisect" else bisect
        top = above
    if bisect is None:
        bisects = (each for each in entries if each.parent == top.store_id)
        bisect = next(bisects, None)
    trials = [each for each in entries if bisect is not None and each.parent == bisect.store_id]
    trials = [each for each in reversed(trials) if each.role != "scan"]
    kinds: Mapping[str, Subject] = {"run": "run", "bisect": "bisect", "trial": "trial"}
    return Shown(
        run_id=top.name,
        experiment_id=entry.experiment_id,
        store_id=top.store_id,
        bisect_id=bisect.name if bisect is not None else None,
        trials=tuple(each.store_id for each in trials[:COMPARED]),
        subject=kinds.get(subject, "all"),
        subject_id=entry.store_id,
    )


_OPENING_SECONDS = 3.0
"""How long the command of a browser is waited for."""


def open_page(address: str) -> bool:
    """Open an address in the default browser; False where there is no screen to see it on."""
    if not has_screen(os.environ):
        return False
    # A browser may stay in the foreground of its command, and one that does not is started in time:
    # the command may end right after this.
    opening = threading.Thread(target=webbrowser.open, args=(address,), daemon=True)
    opening.start()
    opening.join(_OPENING_SECONDS)
    return True


def has_screen(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Return whether a browser started here is seen by who started it.

    Somebody who is logged in from elsewhere would look for it in vain; $BROWSER says that it works.
    """
    if environment.get("BROWSER"):
        return True
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return False
    if platform in {"darwin", "win32"}:
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
