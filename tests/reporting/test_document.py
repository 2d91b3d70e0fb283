"""The JSON report is strict, says its version, and can be read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stabexp.errors import StabexpError
from stabexp.reporting import read_report, report_document, run_document
from stabexp.reporting.document import trials_table


def strict(text: str):
    """Parse JSON as other languages do: no NaN, no Infinity."""

    def refuse(token: str):
        raise ValueError(token)

    return json.loads(text, parse_constant=refuse)


def test_it_is_strict_json_though_losses_are_not_finite(bisect, experiment):
    report = bisect.report(experiment=experiment, fingerprint={"threads": 1, "x": float("nan")})
    data = strict(json.dumps(report_document(report)))
    assert data["format"] == "stabexp-report"
    assert data["version"] == 1
    assert data["verdict"]["cause"] == "learning_rate"
    assert data["fix_yaml"] == "optimizer:\n  lr: 0.0075  # was 3e-2"
    assert "inf" in {record["end_loss"] for record in data["trials"]}
    assert data["fingerprint"]["x"] == "nan"


def test_reading_it_back_gives_the_same_report(bisect, experiment):
    report = bisect.report(experiment=experiment, fingerprint={"threads": 1})
    text = json.dumps(report_document(report))
    again = read_report(text)
    assert again.verdict == report.verdict
    assert json.dumps(report_document(again)) == text


def test_hostile_text_survives_the_way_there_and_back(hostile):
    text = json.dumps(report_document(hostile.report()))
    assert read_report(text).verdict.summary == hostile.verdict.summary


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"version": 2}, "version 2", id="a later version"),
        pytest.param({"format": "other"}, 'its "format" is not', id="another document"),
        pytest.param({"verdict": None}, "stabexp bisect gpt-lr-3f9c1a", id="no verdict"),
        pytest.param({"trials": [{}]}, "damaged", id="a damaged trial"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(bisect, change, message):
    data = report_document(bisect.report()) | change
    with pytest.raises(StabexpError, match=message):
        read_report(json.dumps(data))


def test_a_run_without_a_verdict_has_a_document_of_the_same_form(bisect):
    data = run_document("r", divergence=bisect.verdict.divergence, steps=bisect.steps)
    assert data.keys() >= report_document(bisect.report()).keys()
    assert data["verdict"] is None
    strict(json.dumps(data))


def test_the_documentation_names_every_key(bisect):
    page = (Path(__file__).parents[2] / "docs/report_formats.md").read_text("utf-8")
    data = run_document("r", divergence=None, steps=()) | report_document(bisect.report())
    section = page.partition("## JSON")[2]
    assert [key for key in data if f"`{key}`" not in section] == []


def test_the_table_has_a_row_per_trial_and_no_number_that_is_none(bisect):
    many = [replace(record, number=at) for at, record in enumerate(bisect.trials)]
    table = strict(json.dumps(trials_table(many)))
    assert [row[0] for row in table["data"]] == [f"{at:02d}" for at in range(len(many))]
    assert {len(row) for row in table["data"]} == {len(table["columns"])}
