"""Puts a verdict where people look: beside the run, and in MLflow as page, note, tags and view."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stabexp.records import StepRecord, TrialRecord, Verdict, to_json
from stabexp.reporting.note import verdict_note
from stabexp.reporting.page import verdict_page
from stabexp.reporting.report import gather
from stabexp.tracking.run_directory import STORE_ID, RunDirectory
from stabexp.tracking.web_view import artifact_link


def record_verdict(
    run_directory: RunDirectory,
    directory: RunDirectory,
    records: Sequence[StepRecord],
    trials: Sequence[TrialRecord],
    verdict: Verdict,
) -> None:
    """Write a verdict down for the bisect and for its run: page, note, tags, JSON.

    Args:
        run_directory: The diverged run.
        directory: The bisect, which is finished by this.
        records: The run's step records.
        trials: The bisect's trials.
        verdict: What they showed.
    """
    report = gather(run_directory, directory, verdict=verdict, trials=trials, steps=records)
    page = verdict_page(report)
    note = verdict_note(report, page_link=artifact_link(STORE_ID, "report/verdict.html"))
    tags = {
        "stabexp.cause": verdict.cause,
        "stabexp.confidence": f"{verdict.confidence:.2f}",
        "stabexp.verdict": verdict.summary,
        "stabexp.fix": json.dumps(dict(verdict.fix)),
    }
    data = {"verdict": to_json(verdict), "trials": [to_json(record) for record in trials]}
    for target in (directory, run_directory):
        folder = target.directory("report")
        (folder / "verdict.html").write_text(page, "utf-8")
        target.write_json("report/verdict.json", data)
        target.add_artifact("report/verdict.html", to="report")
        target.add_artifact("report/verdict.json", to="report")
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
    directory.set_tags(
        {
            "mlflow.runName": f"bisect: {verdict.cause} ({run_directory.run_id})",
            "mlflow.runColor": "#1565c0",
        }
    )
    directory.save_view(f"bisect of {run_directory.run_id}")
    directory.write_json("verdict.json", to_json(verdict))
    directory.finish("FINISHED")
