"""A run directory holds everything, survives its process, and is found again."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stabexp
from stabexp.errors import BusyError, RunNotFoundError, TrackingError
from stabexp.records import Divergence, StepRecord, TrialRecord, TrialSpec
from stabexp.tracking import (
    DEFAULT_ROOT,
    RunDirectory,
    exclusive,
    find_run,
    list_runs,
    local_tracking_uri,
    new_run_id,
    run_path,
    web_url,
)
from stabexp.tracking.frames import steps_frame, trials_frame
from stabexp.tracking.run_directory import NOTE_LIMIT, STORE_ID
from stabexp.tracking.upload_state import Upload, write_upload

HOME = Path(stabexp.__file__).parent.parent


def make(run_id: str = "gpt-lr-3f9c1a", **options) -> RunDirectory:
    given = {"kind": "run", "name": run_id, "experiment": "gpt", "tracking_uri": "memory:"}
    return RunDirectory.create(run_path(run_id), run_id=run_id, **(given | options))


def step(number: int, **fields) -> StepRecord:
    given = {"time": 1.0, "loss": 2.0, "lr": 1e-3, "grad_norm": 1.0}
    return StepRecord(step=number, **(given | fields))


def outbox(run: RunDirectory) -> list[dict]:
    return [json.loads(line) for line in (run.path / "outbox.jsonl").read_text().splitlines()]


def test_a_run_reopens_as_it_was_created():
    run = make(params={"lr": 3e-4}, tags={"fault": "lr"})
    again = RunDirectory.open(run.path)
    assert again.manifest == run.manifest
    assert (again.run_id, again.kind, again.name) == ("gpt-lr-3f9c1a", "run", "gpt-lr-3f9c1a")
    assert again.manifest.params == {"lr": "0.0003"}
    assert again.parent is None
    assert again.status() == "RUNNING"


def test_a_second_run_in_the_same_directory_is_refused():
    make()
    with pytest.raises(TrackingError, match="already holds a run"):
        make()


def test_a_trial_knows_its_bisect_and_the_bisect_its_run_also_after_a_move(tmp_path):
    run = make()
    bisect = make_child(run, "bisects", "b1", "bisect")
    trial = make_child(bisect, "trials", "t1", "trial")
    assert [t.run_id for t in bisect.children()] == ["t1"]
    DEFAULT_ROOT.rename("elsewhere")
    moved = RunDirectory.open(Path("elsewhere") / trial.path.relative_to(DEFAULT_ROOT.absolute()))
    assert moved.parent.run_id == "b1"
    assert moved.parent.parent.run_id == "gpt-lr-3f9c1a"


def make_child(parent: RunDirectory, folder: str, run_id: str, kind) -> RunDirectory:
    return RunDirectory.create(
        parent.path / folder / run_id,
        run_id=run_id,
        kind=kind,
        name=run_id,
        parent_path=parent.path,
        experiment="gpt",
        tracking_uri="memory:",
    )


def test_steps_and_status_are_on_disk_at_once():
    run = make()
    run.log_step(step(0))
    run.log_step(step(1, loss=math.inf))
    reader = RunDirectory.open(run.path)
    assert [record.loss for record in reader.read_steps()] == [2.0, math.inf]
    run.finish("FAILED")
    assert reader.status() == "FAILED"
    run.resume()
    run.log_step(step(2))
    assert reader.status() == "RUNNING"
    run.finish("FINISHED")
    assert len(reader.read_steps()) == 3


def test_what_mlflow_should_show_is_one_line_each_in_the_outbox():
    run = make()
    (run.directory("report") / "verdict.html").write_text("<p>")
    run.set_tags({"outcome": "cured", "n": 3})
    run.set_metrics({"end_loss": 0.5, "start_loss": math.nan}, step=7)
    run.log_params({"dose": 0.5})
    run.log_dataset(name="digits", digest="ab12", source="sklearn", profile={"rows": 1797})
    run.add_artifact("report/verdict.html", to="report")
    run.add_artifact(run.path / "run.json")
    lines = outbox(run)
    assert [line["op"] for line in lines] == [
        "tags",
        "metrics",
        "params",
        "dataset",
        "artifact",
        "artifact",
    ]
    assert lines[0]["tags"] == {"outcome": "cured", "n": "3"}
    assert lines[1]["metrics"] == {"end_loss": 0.5}
    assert lines[5]["file"] == "run.json"
    assert all(line["time"] > 1.7e12 for line in lines)


@pytest.mark.parametrize("file", ["../other/x.txt", "/etc/passwd"])
def test_an_artifact_outside_the_run_directory_is_refused(file):
    with pytest.raises(TrackingError, match="outside the run directory"):
        make().add_artifact(file)


def test_an_artifact_that_is_not_there_is_refused():
    with pytest.raises(TrackingError, match="no such file; write it before"):
        make().add_artifact("nothing.txt")


def test_a_long_note_is_cut_at_a_line_with_a_remark():
    run = make()
    run.set_note("\n".join(f"line {n} {STORE_ID}" for n in range(400)))
    note = outbox(run)[0]["markdown"]
    assert len(note.replace(STORE_ID, "a" * 32)) <= NOTE_LIMIT
    assert re.search(r"\nline \d+ \{mlflow.run_id\}\n\n\*Cut here", note)
    run.set_note("short")
    assert outbox(run)[1]["markdown"] == "short"


def test_an_outbox_torn_in_its_last_line_goes_on_in_a_sound_one():
    run = make()
    run.set_tags({"a": 1})
    with (run.path / "outbox.jsonl").open("a") as file:
        file.write('{"op":"tags","ti')
    run.set_tags({"b": 2})
    assert [line["tags"] for line in outbox(run)] == [{"a": "1"}, {"b": "2"}]


def test_json_is_written_whole_or_not_at_all():
    run = make()
    run.write_json("search.json", {"trials": [1, 2]})
    with pytest.raises(ValueError, match="Out of range"):
        run.write_json("search.json", {"trials": [math.nan]})
    assert run.read_json("search.json") == {"trials": [1, 2]}
    assert not list(run.path.glob(".*"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "run.json: not JSON", id="empty"),
        pytest.param("{}", r"damaged or from another version \(wrong: run_id, kind", id="fields"),
        pytest.param("[]", "run.json: damaged or from another version", id="no object"),
    ],
)
def test_a_damaged_manifest_is_named(content, message):
    run = make()
    (run.path / "run.json").write_text(content)
    with pytest.raises(TrackingError, match=message):
        RunDirectory.open(run.path)
    assert list_runs() == []


def test_a_directory_without_a_run_is_named():
    with pytest.raises(RunNotFoundError, match="holds no run"):
        RunDirectory.open(Path("nowhere"))


def test_a_run_is_found_by_id_by_unique_prefix_and_by_its_mlflow_id():
    first, second = make("gpt-lr-3f9c1a"), make("gpt-lr-80aa02")
    bisect = make_child(second, "bisects", "b1", "bisect")
    write_upload(bisect.path, "memory:", Upload(store_id="0123abc"))
    assert find_run("gpt-lr-3f9c1a").path == first.path
    assert find_run("gpt-lr-8").path == second.path
    assert find_run("0123abc").path == bisect.path
    assert [run.run_id for run in list_runs()] == ["gpt-lr-3f9c1a", "gpt-lr-80aa02"]


@pytest.mark.parametrize(
    ("run_id", "message"),
    [
        pytest.param("gpt-lr-", "2 runs begin so: gpt-lr-3f9c1a, gpt-lr-80aa02; give", id="both"),
        pytest.param("gpt-lr-3f9c1b", "did you mean 'gpt-lr-3f9c1a'", id="a typing error"),
        pytest.param("x", "not found in .*stabexp_runs; the latest there are gpt-lr", id="nothing"),
        pytest.param("", "not found in", id="empty"),
        pytest.param("../runs/gpt-lr-3f9c1a", "not found in", id="a path"),
    ],
)
def test_a_run_that_is_not_found_gives_a_hint(run_id, message):
    make("gpt-lr-3f9c1a")
    make("gpt-lr-80aa02")
    with pytest.raises(RunNotFoundError, match=message):
        find_run(run_id)


def test_a_root_without_runs_says_so():
    with pytest.raises(RunNotFoundError, match="it holds no runs yet"):
        find_run("gpt", Path("empty"))


@pytest.mark.parametrize("name", ["gpt-lr", "GPT / lr=3e-4!", "..", "", "ü" * 80])
def test_a_new_run_id_is_a_plain_file_name(name):
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*-[0-9a-f]{6}", new_run_id(name))


def test_the_default_store_lies_next_to_the_runs(tmp_path):
    assert local_tracking_uri() == f"sqlite:///{tmp_path}/stabexp_runs/mlflow.db"


def test_a_lock_names_its_holder_and_dies_with_it():
    Path("run").mkdir()
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom stabexp.tracking.lock import exclusive\n"
        "with exclusive(Path('run')):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(HOME)},
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(BusyError, match=f"process {holder.pid} is working"),
            exclusive(Path("run")),
        ):
            pass
        holder.kill()
    with exclusive(Path("run")):
        assert Path("run/lock").read_text() == f"{os.getpid()}\n"


def test_deep_links_open_the_pages_for_training_runs():
    address = "http://localhost:5000/#/experiments/1/runs"
    kind = "?workflowType=machine_learning"
    assert web_url("http://localhost:5000/", "1") == address + kind
    assert web_url("http://localhost:5000", "1", "ab") == f"{address}/ab{kind}"
    assert (
        web_url("http://localhost:5000", "1", "ab", artifact="report/verdict.html")
        == f"{address}/ab/artifacts/report/verdict.html{kind}"
    )


def test_steps_become_a_table():
    frame = steps_frame([step(0, loss=math.nan), step(1, metrics={"acc": 0.5})])
    assert list(frame["step"]) == [0, 1]
    assert frame["loss"].isna().tolist() == [True, False]
    assert frame["metrics/acc"].tolist()[1] == 0.5
    assert list(steps_frame([]).columns[:2]) == ["step", "time"]


def test_trials_become_a_table():
    spec = TrialSpec(role="control", from_step=10, until_step=60)
    found = Divergence(
        detector="loss_spike",
        detected=30,
        onset=28,
        pattern="sudden_jump",
        value=9.0,
        limit=6.0,
        message="",
    )
    record = TrialRecord(
        spec=spec, outcome="diverged", last_step=30, divergence=found, metrics={"slope": 0.1}
    )
    row = trials_frame([record]).iloc[0]
    assert (row["role"], row["outcome"], row["steps"], row["onset"]) == (
        "control",
        "diverged",
        21,
        28,
    )
    assert row["metrics/slope"] == 0.1
