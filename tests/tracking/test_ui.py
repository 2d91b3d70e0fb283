"""The MLflow pages open where the store was recorded, and where it was moved or cloned to."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import stabexp
from stabexp.errors import RunNotFoundError, StabexpError, TrackingError
from stabexp.records import StepRecord
from stabexp.tracking import RunDirectory, local_tracking_uri, run_path
from stabexp.tracking.portable_store import is_at_home, open_database, relocate
from stabexp.tracking.ui import send, serve
from stabexp.tracking.upload_state import Upload, write_upload

HOME = Path(stabexp.__file__).parent.parent
EXAMPLE = HOME / "mlruns_example"
PLACE = re.compile(rb"(?<![\w.>])/(home|root|tmp|work|Users|private|mnt)/\w+")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(HOME), "PYTHONUNBUFFERED": "1"}


def record(root: Path, *, uri: str = "", experiment: str = "gpt/small 1") -> RunDirectory:
    """Return a diverged run with a bisect and one trial."""
    uri = uri or local_tracking_uri(root)
    shared = {"experiment": experiment, "tracking_uri": uri}
    path = run_path("gpt-ab12cd", root)
    run = RunDirectory.create(
        path, run_id="gpt-ab12cd", kind="run", name="gpt DIVERGED@3", **shared
    )
    for n in range(4):
        run.log_step(StepRecord(step=n, time=1.7e9 + n, loss=2.0 + n, lr=0.1, grad_norm=1.0))
    (run.directory("report") / "verdict.html").write_text("<h1>It was the learning rate</h1>")
    run.add_artifact("report/verdict.html", to="report")
    run.finish("FAILED")
    bisect = RunDirectory.create(
        path / "bisects/bisect-1",
        run_id="gpt-ab12cd.bisect-1",
        kind="bisect",
        name="bisect: learning_rate",
        parent_path=path,
        **shared,
    )
    bisect.save_view("bisect of gpt-ab12cd")
    bisect.finish("FINISHED")
    trial = RunDirectory.create(
        bisect.path / "trials/t1",
        run_id="gpt-ab12cd.bisect-1.t1",
        kind="trial",
        name="01 learning_rate ×0.5: cured",
        parent_path=bisect.path,
        params={"changed": "learning_rate", "dose": 0.5, "start_step": 0},
        **shared,
    )
    trial.finish("FINISHED")
    return run


@contextlib.contextmanager
def shown(root: Path, *arguments: str):
    """Run `stabexp ui` and yield what it said and the server's address; end it with Ctrl-C."""
    command = [sys.executable, "-m", "stabexp.cli", "ui", "--no-open", "--root", str(root)]
    command += arguments
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            assert "Ctrl-C" in said, said
            yield said, re.findall(r"http://127\.0\.0\.1:\d+", said)[0]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, said
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(re.findall(r"http://127\.0\.0\.1:\d+", said)[0], timeout=2)


def ask(address: str, call: str, **query):
    body = json.dumps(query).encode() if call.endswith("search") else None
    parameters = "" if body else f"?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/{call}{parameters}",
        data=body,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def artifact(address: str, store_id: str, path: str) -> str:
    query = urllib.parse.urlencode({"path": path, "run_uuid": store_id})
    with urllib.request.urlopen(f"{address}/get-artifact?{query}", timeout=30) as answer:
        return answer.read().decode()


def assert_shows(address: str, names: set[str], report: str) -> None:
    """Every experiment's runs are listed, and the first diverged run's report can be read."""
    experiments = ask(address, "experiments/search", max_results=10)["experiments"]
    wanted = [entry["experiment_id"] for entry in experiments]
    runs = ask(address, "runs/search", experiment_ids=wanted, max_results=100)["runs"]
    assert names <= {run["info"]["run_name"] for run in runs}
    tops = [run for run in runs if "DIVERGED" in run["info"]["run_name"]]
    # A run that was bisected is called by its cause too.
    tops.sort(key=lambda run: ": " not in run["info"]["run_name"])
    assert report in artifact(address, tops[0]["info"]["run_id"], "report/verdict.html")


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, database) -> Path:
    """The root of a run that arrived in its own store."""
    root = tmp_path_factory.mktemp("recorded") / "stabexp_runs"
    root.mkdir()
    shutil.copy(database, root / "mlflow.db")
    record(root)
    # In a process of its own, as users do: MLflow's libraries warn, and here warnings are errors.
    command = [sys.executable, "-m", "stabexp.cli", "sync", "--root", str(root)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert answer.stdout == "gpt-ab12cd: everything has arrived\n"
    return root


NAMES = {"gpt DIVERGED@3", "bisect: learning_rate", "01 learning_rate ×0.5: cured"}


def test_a_store_opens_where_it_was_recorded_on_the_next_free_port(recorded):
    assert is_at_home(recorded / "mlflow.db")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with shown(recorded, "gpt-ab", "--port", str(port)) as (said, address):
            assert f"port {port} is in use; taking {port + 1}" in said
            assert address.endswith(str(port + 1))
            assert said.count("viewStateShareKey=") == 3
            assert "report/verdict.html?workflowType=machine_learning" in said
            assert_shows(address, NAMES, "It was the learning rate")


def test_a_moved_store_opens_with_its_artifacts_and_stays_as_it_is(recorded, tmp_path):
    moved = tmp_path / "elsewhere with spaces"
    shutil.copytree(recorded, moved)
    before = sha256(moved / "mlflow.db")
    hidden = recorded.rename(recorded.with_name("gone"))
    try:
        with shown(moved, "--port", "0") as (said, address):
            assert "shown from a copy" in said
            assert_shows(address, NAMES, "It was the learning rate")
    finally:
        hidden.rename(recorded)
    assert sha256(moved / "mlflow.db") == before
    assert sorted(path.name for path in moved.iterdir()) == ["artifacts", "mlflow.db", "runs"]


@pytest.mark.skipif(not EXAMPLE.exists(), reason="there is no example store in this copy")
def test_the_example_store_is_small_names_no_machine_and_opens_from_any_clone(tmp_path):
    files = [file for file in EXAMPLE.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 4_000_000
    kinds = {".db", ".json", ".jsonl", ".yaml", ".html", ".txt", ".md", ".svg"}
    assert {file.suffix for file in files} <= kinds
    for file in files:
        found = re.search(
            rb"(?<![\w.>])/(home|root|tmp|work|Users|private|mnt)/\w+", file.read_bytes()
        )
        assert found is None, f"{file}: {found}"
    clone = tmp_path / "clone"
    shutil.copytree(EXAMPLE, clone)
    before = sha256(clone / "mlflow.db")
    with shown(clone, "--port", "0") as (said, address):
        assert said.count("viewStateShareKey=") == 3
        assert_shows(address, set(), "<svg")
    assert sha256(clone / "mlflow.db") == before


def test_making_a_store_portable_twice_changes_nothing_more(recorded, tmp_path):
    file = tmp_path / "mlflow.db"
    shutil.copy(recorded / "mlflow.db", file)
    relocate(file)
    once = uris(file)
    relocate(file)
    assert uris(file) == once
    assert all(uri.startswith("mlflow-artifacts:/") for uri in once)


def uris(file: Path) -> list[str]:
    with open_database(file) as database:
        return [
            uri
            for query in (
                "select artifact_location from experiments",
                "select artifact_uri from runs order by run_uuid",
            )
            for (uri,) in database.execute(query)
        ]


@pytest.mark.parametrize(
    ("prepare", "run_id", "error", "message"),
    [
        pytest.param(
            lambda root: None,
            None,
            StabexpError,
            "there is no MLflow store yet; make one with: stabexp run",
            id="nothing was run",
        ),
        pytest.param(
            record,
            None,
            StabexpError,
            "there is no MLflow store yet; send what was recorded with: stabexp sync --root",
            id="nothing has arrived",
        ),
        pytest.param(
            lambda root: record(root, uri="http://127.0.0.1:9"),
            None,
            StabexpError,
            "has not arrived at http://127.0.0.1:9; send it with: stabexp sync gpt-ab12cd",
            id="the server has nothing",
        ),
        pytest.param(
            lambda root: record(root, uri="postgresql://db/x"),
            None,
            StabexpError,
            "open it with: mlflow server --backend-store-uri postgresql://db/x",
            id="another kind of store",
        ),
        pytest.param(
            lambda root: (root.mkdir(), (root / "mlflow.db").write_bytes(b"not a database" * 99)),
            None,
            TrackingError,
            "cannot be used as an MLflow database",
            id="not a database",
        ),
        pytest.param(
            lambda root: None, "abc", RunNotFoundError, "run abc: not found", id="no such run"
        ),
    ],
)
def test_what_cannot_be_shown_is_said_with_its_remedy(tmp_path, prepare, run_id, error, message):
    prepare(tmp_path / "runs")
    with pytest.raises(error, match=re.escape(message)):
        serve(tmp_path / "runs", run_id=run_id, port=0, say=print)


def test_a_run_that_is_not_in_the_database_is_named(recorded):
    with pytest.raises(RunNotFoundError, match=r"run other: is not in .*stabexp sync"):
        serve(recorded, run_id="other", port=0, say=print)


def test_of_a_run_on_a_server_only_the_addresses_are_said(tmp_path):
    uri = "http://tracking.example:5000"
    run = record(tmp_path, uri=uri)
    bisect = run.children()[0]
    for directory, store_id in ((run, "aa"), (bisect, "bb")):
        write_upload(directory.path, uri, Upload(store_id=store_id, experiment_id="7"))
    said: list[str] = []
    assert serve(tmp_path, run_id="gpt-ab12cd.bisect-1"[:9], port=0, say=said.append) == 0
    addresses = [line.split()[-1] for line in said[1:]]
    start = f"{uri}/#/experiments/7/runs"
    kind = "?workflowType=machine_learning"
    assert addresses == [
        f"{start}{kind}&viewStateShareKey=stabexp-gpt-ab12cd.bisect-1-trials",
        f"{start}{kind}&compareRunsMode=CHART&viewStateShareKey=stabexp-gpt-ab12cd.bisect-1-charts",
        f"{start}/aa/artifacts/report/verdict.html{kind}",
        f"{start}/aa{kind}",
        f"{start}{kind}&viewStateShareKey=stabexpruns",
    ]


def test_what_a_dead_server_does_not_take_waits_and_the_reason_is_said(tmp_path):
    run = record(tmp_path, uri="http://127.0.0.1:9")
    answer = send(run)
    assert re.match(r"\d+ items wait: http://127\.0\.0\.1:9: .*refused", answer), answer
    assert "\n" not in answer
