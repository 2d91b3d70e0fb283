"""`stabexp report`: the file or the text that was asked for, from what is on disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from stabexp import api
from stabexp.cli import app
from stabexp.errors import RunNotFoundError, StabexpError
from stabexp.records import to_json
from stabexp.reporting import read_report
from stabexp.reporting.publish import record_verdict
from stabexp.tracking import RunDirectory
from stabexp.tracking.upload_state import Upload, write_upload

SHARED = {"experiment": "e", "tracking_uri": "http://127.0.0.1:9"}


@pytest.fixture
def root(tmp_path, bisect, experiment, monkeypatch):
    """A root with one bisected run, "gpt-lr-3f9c1a", and one that was not bisected, "lone-1"."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "stabexp_runs/runs/gpt-lr-3f9c1a"
    run = RunDirectory.create(path, run_id=path.name, kind="run", name=path.name, **SHARED)
    for record in bisect.steps:
        run.log_step(record)
    (path / "experiment.yaml").write_text(experiment)
    run.write_json("fingerprint.json", {"threads": 1})
    run.write_json("divergence.json", to_json(bisect.verdict.divergence))
    run.finish("FAILED")
    for number, summary in ((1, "It was the first"), (2, bisect.verdict.summary)):
        directory = RunDirectory.create(
            path / f"bisects/bisect-{number}",
            run_id=f"{path.name}.bisect-{number}",
            kind="bisect",
            name="bisect",
            parent_path=path,
            **SHARED,
        )
        for record in bisect.trials:
            trial = RunDirectory.create(
                directory.path / "trials" / record.spec.key,
                run_id=f"{directory.run_id}.{record.spec.key}",
                kind="trial",
                name=record.name,
                parent_path=directory.path,
                **SHARED,
            )
            for step in bisect.trial_steps[record.spec.key]:
                trial.log_step(step)
            trial.write_json("trial.json", to_json(replace(record, directory=record.spec.key)))
            trial.finish("FINISHED")
        verdict = replace(bisect.verdict, summary=summary)
        record_verdict(run, directory, bisect.steps, bisect.trials, verdict)
    lone = path.with_name("lone-1")
    other = RunDirectory.create(lone, run_id="lone-1", kind="run", name="lone-1", **SHARED)
    other.write_json("divergence.json", to_json(bisect.verdict.divergence))
    other.finish("FAILED")
    return tmp_path


def report(*arguments: str):
    return CliRunner().invoke(app, ["report", *arguments], catch_exceptions=False)


def test_a_page_goes_to_a_file_whose_name_is_printed(root):
    answer = report("gpt-lr")
    assert answer.output == "gpt-lr-3f9c1a-report.html\n"
    page = (root / "gpt-lr-3f9c1a-report.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "The learning rate is too high" in page


def test_trials_that_arrived_at_a_server_are_linked_to_their_pages(root, bisect):
    trials = root / "stabexp_runs/runs/gpt-lr-3f9c1a/bisects/bisect-2/trials"
    arrived, secret, *_ = sorted(trials.iterdir())
    write_upload(arrived, SHARED["tracking_uri"], Upload(store_id="aa", experiment_id="7"))
    manifest = json.loads((secret / "run.json").read_text())
    manifest["tracking_uri"] = "http://ada:secret@127.0.0.1:9"
    (secret / "run.json").write_text(json.dumps(manifest))
    write_upload(secret, manifest["tracking_uri"], Upload(store_id="bb", experiment_id="7"))
    page = report("gpt-lr", "--out", "-").output
    assert page.count('href="http://127.0.0.1:9/#/experiments/7/runs/aa?') == 1
    assert "secret@" not in page


def test_markdown_and_json_go_to_the_terminal(root, bisect):
    assert report("gpt-lr", "--format", "md").output.startswith("### Run gpt-lr-3f9c1a diverged")
    text = report("gpt-lr", "--format", "json").output
    assert read_report(text).verdict == bisect.verdict
    assert [path.name for path in root.iterdir()] == ["stabexp_runs"]


def test_a_file_gets_the_format_of_its_name_or_the_terminal_gets_the_page(root):
    assert report("gpt-lr", "--out", "issue.md").output == "issue.md\n"
    assert (root / "issue.md").read_text("utf-8").startswith("### Run")
    assert report("gpt-lr", "--out", "-").output.startswith("<!doctype html>")
    assert sorted(path.name for path in root.iterdir()) == ["issue.md", "stabexp_runs"]


def test_an_earlier_bisect_and_a_bisect_by_its_mlflow_id_can_be_told(root):
    assert "It was the first" in report("gpt-lr", "--bisect", "1", "--format", "md").output
    assert "It was the first" not in report("gpt-lr", "--format", "md").output


def test_a_run_that_was_not_bisected_is_told_as_far_as_it_is_known(root):
    text = report("lone-1", "--format", "md").output
    assert "### Run lone-1 diverged at step 141" in text
    assert "stabexp bisect lone-1" in text
    assert json.loads(report("lone-1", "--format", "json").output)["verdict"] is None


@pytest.mark.parametrize(
    ("run_id", "options", "error", "message"),
    [
        ("lone-1", {}, StabexpError, "a page is made of a verdict.*stabexp bisect lone-1"),
        ("gpt-lr", {"bisect": 3}, StabexpError, "has no bisect 3; there are: 1, 2"),
        ("lone-1", {"bisect": 1}, StabexpError, "has no bisect 1; make one: stabexp bisect"),
        ("gpt-lr", {"format": "pdf"}, StabexpError, "format 'pdf': allowed: html, md, json"),
        ("other", {}, RunNotFoundError, "run other: not found"),
    ],
)
def test_what_cannot_be_told_is_said_with_its_remedy(root, run_id, options, error, message):
    with pytest.raises(error, match=message):
        api.report(run_id, **options)


def test_nothing_is_written_where_there_is_no_folder(root):
    with pytest.raises(StabexpError, match="no such folder; make it"):
        report("gpt-lr", "--out", "nowhere/x.html")
    assert report("gpt-lr", "--format", "pdf").exit_code == 2


def test_what_mlflow_is_given_is_beside_the_run(root):
    folder = root / "stabexp_runs/runs/gpt-lr-3f9c1a/report"
    names = {"loss.svg", "trials.json", "verdict.html", "verdict.json", "verdict.md"}
    assert {path.name for path in folder.iterdir()} == names
    assert "<details>" not in (folder / "verdict.md").read_text("utf-8")


def test_a_page_that_cannot_be_drawn_does_not_cost_the_verdict(root, bisect, caplog):
    run = RunDirectory.open(root / "stabexp_runs/runs/gpt-lr-3f9c1a")
    directory = RunDirectory.open(run.path / "bisects/bisect-2")
    (directory.path / "verdict.json").unlink()
    broken = [replace(record, start_loss="?") for record in bisect.trials]
    record_verdict(run, directory, bisect.steps, broken, bisect.verdict)
    assert (directory.path / "verdict.json").exists()
    told = (run.path / "report/verdict.html").read_text("utf-8")
    assert "could not be made" in told
    assert bisect.verdict.summary in told
    assert "please report this" in caplog.text
