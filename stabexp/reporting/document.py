"""A report as one JSON document, for programs, and back.

The document is strict JSON: numbers that are none are the strings "nan", "inf" and "-inf". What is
in it stays in it; a reader that knows version 1 can read every later document that says version 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from stabexp.errors import StabexpError
from stabexp.records import Divergence, StepRecord, TrialRecord, Verdict, from_json, to_json
from stabexp.reporting import words
from stabexp.reporting.patch import patch_yaml
from stabexp.reporting.report import Report

FORMAT = "stabexp-report"
VERSION = 1


def report_document(report: Report) -> dict[str, Any]:
    """Return the report as JSON-ready values."""
    verdict = report.verdict
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": verdict.run_id,
        "divergence": to_json(verdict.divergence),
        "verdict": to_json(verdict),
        "trials": [to_json(record) for record in words.ordered(report.trials)],
        "fix_yaml": patch_yaml(verdict.fix, report.experiment) if verdict.fix else "",
        "experiment": report.experiment,
        "fingerprint": _strict(report.fingerprint),
    }


def run_document(
    run_id: str,
    *,
    divergence: Divergence | None,
    steps: Sequence[StepRecord],
    events: Sequence[Mapping[str, Any]] = (),
    experiment: str = "",
) -> dict[str, Any]:
    """Return what is known of a run that was not bisected; its verdict is null."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": run_id,
        "divergence": to_json(divergence) if divergence is not None else None,
        "verdict": None,
        "trials": [],
        "fix_yaml": "",
        "experiment": experiment,
        "fingerprint": {},
        "steps": len(steps),
        "events": _strict(list(events)),
    }


def read_report(text: str) -> Report:
    """Return a report from its document; curves and samples are not in it.

    Raises:
        StabexpError: If it is no such document, of a later version, or of a run without a verdict.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise StabexpError(f"not a report: not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StabexpError(f'not a report: its "format" is not "{FORMAT}"')
    if data.get("version") != VERSION:
        raise StabexpError(
            f"a report of version {data.get('version')}; this stabexp reads version {VERSION}: "
            "install the one that wrote it"
        )
    if data.get("verdict") is None:
        raise StabexpError(
            f"the report on run {data.get('run_id')} has no verdict; make one with: "
            f"stabexp bisect {data.get('run_id')}"
        )
    try:
        return Report(
            verdict=from_json(Verdict, data["verdict"]),
            trials=[from_json(TrialRecord, record) for record in data["trials"]],
            experiment=str(data.get("experiment", "")),
            fingerprint=dict(data.get("fingerprint", {})),
        )
    except (ValidationError, KeyError, TypeError) as error:
        raise StabexpError(f"a damaged report: {error}") from error


def trials_table(trials: Sequence[TrialRecord]) -> dict[str, Any]:
    """Return the trials in the form that MLflow shows as a table."""
    columns = ["trial", "change", "outcome", "loss", "what it showed", "role", "steps", "from step"]
    rows = [
        [
            words.label(record),
            "each sample alone" if record.spec.role == "scan" else words.change(record),
            words.outcome(record),
            words.losses(record),
            words.finding(record),
            record.spec.role,
            max(0, record.steps),
            record.spec.from_step,
        ]
        for record in words.ordered(trials)
    ]
    return {"columns": columns, "data": rows}


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
