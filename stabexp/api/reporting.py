"""`report`: what was found out about a run, as a page, as Markdown or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stabexp.errors import StabexpError
from stabexp.records import Verdict
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, find_run

if TYPE_CHECKING:
    from stabexp.reporting import Report

ReportFormat = Literal["html", "md", "json"]
FORMATS: tuple[ReportFormat, ...] = ("html", "md", "json")


def report(
    run_id: str,
    *,
    format: ReportFormat = "html",
    bisect: int | None = None,
    root: Path | str = DEFAULT_ROOT,
) -> str:
    """Return the report on a run: a page that needs nothing else, Markdown for an issue, or JSON.

    A run without a verdict has a report as Markdown and as JSON, of what is known by then.

    Args:
        run_id: The run's id, the beginning of it, or an MLflow run id; that of a bisect means it.
        format: "html", "md" or "json".
        bisect: Which bisect of the run, from 1; None takes the latest that has a verdict.
        root: Where runs are kept.

    Raises:
        RunNotFoundError: If there is no such run.
        StabexpError: If it has no such bisect, or a page is asked for and there is no verdict.
    """
    from stabexp.reporting import (
        report_document,
        run_document,
        run_markdown,
        verdict_markdown,
        verdict_page,
    )

    if format not in FORMATS:
        raise StabexpError(f"format {format!r}: allowed: {', '.join(FORMATS)}")
    directory = find_run(run_id, root)
    chosen: RunDirectory | None = None
    while directory.kind != "run" and (parent := directory.parent) is not None:
        chosen = directory if directory.kind == "bisect" else None
        directory = parent
    found = chosen if chosen is not None and bisect is None else _bisect(directory, bisect)
    if found is not None:
        told = _gathered(directory, found)
        if format == "html":
            return verdict_page(told)
        if format == "md":
            return verdict_markdown(told)
        return _json(report_document(told))
    divergence = directory.divergence()
    if format == "html":
        known = (
            f"find out why it diverged: stabexp bisect {directory.run_id}"
            if divergence is not None
            else f"look whether its step breaks a rule: stabexp check {directory.run_id}"
        )
        raise StabexpError(
            f"run {directory.run_id}: a page is made of a verdict, and there is none yet; {known}; "
            "what is known by now: --format md"
        )
    text = directory.path / "experiment.yaml"
    write = run_markdown if format == "md" else run_document
    made = write(
        directory.run_id,
        divergence=divergence,
        steps=directory.read_steps(),
        events=directory.read_events(),
        experiment=text.read_text("utf-8") if text.exists() else "",
    )
    return made if isinstance(made, str) else _json(made)


def _bisect(directory: RunDirectory, number: int | None) -> RunDirectory | None:
    """Return the bisect with this number, else the latest with a verdict, else None."""
    bisects = [child for child in directory.children() if child.kind == "bisect"]
    done = [child for child in bisects if (child.path / "verdict.json").exists()]
    if number is None:
        return done[-1] if done else None
    for child in done:
        if child.path.name == f"bisect-{number}":
            return child
    if any(child.path.name == f"bisect-{number}" for child in bisects):
        raise StabexpError(
            f"run {directory.run_id}: bisect {number} has no verdict yet; go on with it: "
            f"stabexp bisect {directory.run_id}"
        )
    names = ", ".join(child.path.name.removeprefix("bisect-") for child in done)
    raise StabexpError(
        f"run {directory.run_id}: has no bisect {number}; "
        + (f"there are: {names}" if names else f"make one: stabexp bisect {directory.run_id}")
    )


def _gathered(directory: RunDirectory, bisect: RunDirectory) -> Report:
    from stabexp.bisection.trials import read_trials
    from stabexp.reporting import gather

    if not (bisect.path / "verdict.json").exists():
        raise StabexpError(
            f"{bisect.run_id}: has no verdict yet; go on with it: stabexp bisect {directory.run_id}"
        )
    verdict = bisect.read_record(Verdict, "verdict.json")
    return gather(directory, bisect, verdict=verdict, trials=read_trials(bisect))


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
