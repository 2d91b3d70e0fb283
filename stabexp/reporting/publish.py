"""Puts a verdict where people look: beside the run, and in MLflow as page, note, tags and view."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial

from stabexp.records import StepRecord, TrialRecord, Verdict, to_json
from stabexp.reporting.document import report_document, trials_table
from stabexp.reporting.loss_picture import FILE, loss_picture
from stabexp.reporting.markdown import verdict_markdown
from stabexp.reporting.note import verdict_note
from stabexp.reporting.page import verdict_page
from stabexp.reporting.report import Report, gather
from stabexp.tracking.run_directory import EXPERIMENT_ID, STORE_ID, RunDirectory
from stabexp.tracking.web_view import (
    CAUSE_TAG,
    COLOURS,
    CONFIDENCE_TAG,
    FINDING_TAG,
    artifact_link,
    image_source,
    saved_view_url,
)

_LOG = logging.getLogger(__name__)

TRIALS = "trials.json"
"""In a report's folder: the trials as a table."""


def record_verdict(
    run_directory: RunDirectory,
    directory: RunDirectory,
    records: Sequence[StepRecord],
    trials: Sequence[TrialRecord],
    verdict: Verdict,
) -> None:
    """Write a verdict down for the bisect and for its run: page, Markdown, picture, note, tags.

    Args:
        run_directory: The diverged run.
        directory: The bisect, which is finished by this.
        records: The run's step records.
        trials: The bisect's trials.
        verdict: What they showed.
    """
    report = gather(run_directory, directory, verdict=verdict, trials=trials, steps=records)
    files = _files(report)
    bisect_id = directory.run_id
    links = (
        ("The full report with curves", artifact_link(STORE_ID, "report/verdict.html")),
        ("All trials in a table", _view(bisect_id)),
        ("in charts", _view(bisect_id, charts=True)),
    )
    note = verdict_note(report, links=links, picture=image_source(STORE_ID, f"report/{FILE}"))
    tags = {
        CAUSE_TAG: verdict.cause,
        CONFIDENCE_TAG: f"{verdict.confidence:.2f}",
        FINDING_TAG: verdict.summary,
        "stabexp.fix": json.dumps(dict(verdict.fix)),
        # What MLflow shows as a table.
        "mlflow.loggedArtifacts": json.dumps([{"path": f"report/{TRIALS}", "type": "table"}]),
    }
    for target in (directory, run_directory):
        folder = target.directory("report")
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8")
        target.write_json("report/verdict.json", report_document(report))
        for name in (*files, "verdict.json"):
            target.add_artifact(f"report/{name}", to="report")
        target.set_note(note)
        target.set_tags(tags)
    if (directory.path / "optuna.db").exists():
        directory.add_artifact("optuna.db")
    directory.set_metrics(
        {
            "verdict/confidence": verdict.confidence,
            "verdict/trials": verdict.trials,
            "verdict/replayed_steps": verdict.replayed_steps,
        }
    )
    if verdict.divergence.detector != "none":
        name = f"{run_directory.run_id} DIVERGED@{verdict.divergence.detected}: {verdict.cause}"
        run_directory.set_tags({"mlflow.runName": name})
    number = directory.path.name.rpartition("-")[2]
    directory.set_tags(
        {
            "mlflow.runName": f"bisect {number}: {verdict.cause} ({run_directory.run_id})",
            "mlflow.runColor": COLOURS["bisect"],
        }
    )
    directory.save_view(f"{run_directory.run_id}, bisect {number}")
    directory.write_json("verdict.json", to_json(verdict))
    directory.finish("FINISHED")


def _files(report: Report) -> dict[str, str]:
    """Return name → content of what people open."""
    forms: dict[str, Callable[[Report], str]] = {
        "verdict.html": verdict_page,
        "verdict.md": partial(verdict_markdown, folded=False),
        TRIALS: _table,
        FILE: loss_picture,
    }
    return {name: _made(name, form, report) for name, form in forms.items()}


def _table(report: Report) -> str:
    return json.dumps(trials_table(report.trials), ensure_ascii=False, allow_nan=False)


def _made(name: str, form: Callable[[Report], str], report: Report) -> str:
    """Return one file's content; where it cannot be made, why: the verdict does not hang on it."""
    try:
        return form(report)
    except Exception as error:
        _LOG.warning("report/%s could not be made; please report this", name, exc_info=True)
        return (
            f"{name} could not be made: {type(error).__name__}: {error}\n{report.verdict.summary}\n"
        )


def _view(bisect_id: str, *, charts: bool = False) -> str:
    return saved_view_url("", EXPERIMENT_ID, bisect_id, charts=charts).lstrip("/")
