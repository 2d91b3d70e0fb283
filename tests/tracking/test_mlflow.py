"""What arrives in a real MLflow, also when uploader and server fail at the worst times."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zlib
from pathlib import Path

import pytest
from command_line import NOWHERE

import stabexp.tracking
from stabexp.records import StepRecord
from stabexp.tracking import RunDirectory, local_tracking_uri, new_run_id, run_path
from stabexp.tracking.upload_state import read_upload
from stabexp.tracking.uploader import pending, start_uploader, wait_for_upload

pytestmark = pytest.mark.slow

PACKAGE_HOME = Path(stabexp.__file__).parent.parent


def record_run(uri: str, *, steps: int, name: str = "gpt") -> RunDirectory:
    run_id = new_run_id(name)
    run = RunDirectory.create(
        run_path(run_id),
        run_id=run_id,
        kind="run",
        name="gpt DIVERGED@60",
        experiment=f"experiment of {run_id}",
        tracking_uri=uri,
        params={"optimizer.lr": 3e-4, "note": "x" * 7000},
        tags={"stabexp.role": "source", "mlflow.runColor": "#cc0000"},
    )
    for n in range(steps):
        run.log_step(
            StepRecord(
                step=n,
                time=1.7e9 + n,
                loss=math.nan if n == 5 else 2.0 + n,
                lr=1e-3,
                grad_norm=1.0,
                layers={"h.0 (attn)": {"grad_norm": 2.0}} if n % 10 == 0 else None,
            )
        )
    return run


def uploader(run: RunDirectory, uri: str, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "stabexp.tracking.uploader", str(run.path), "--uri", uri]
    with (run.path / "upload.log").open("ab") as log:
        return subprocess.Popen(
            [*command, *options],
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(PACKAGE_HOME)},
        )


def rows(database: Path, query: str, *arguments) -> list[tuple]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = connection.execute(query, arguments).fetchall()
    connection.close()
    return found


def ask(server: str, call: str, **query) -> dict:
    address = f"{server}/api/2.0/mlflow/{call}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=20) as answer:
        return json.load(answer)


@pytest.fixture
def local(database) -> Path:
    Path("stabexp_runs").mkdir()
    shutil.copy(database, "stabexp_runs/mlflow.db")
    return Path("stabexp_runs/mlflow.db").absolute()


def test_kill_9_of_the_uploader_again_and_again_loses_and_doubles_nothing(local):
    run = record_run(local_tracking_uri(), steps=1500)
    run.set_metrics({"verdict/steps_survived": 60})
    run.finish("FAILED")
    kills = 0
    while True:
        before = read_upload(run.path, local_tracking_uri()).steps
        process = uploader(run, local_tracking_uri())
        while process.poll() is None:
            if kills < 2 and read_upload(run.path, local_tracking_uri()).steps > before:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
            time.sleep(0.01)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, (run.path / "upload.log").read_text()
    assert kills == 2
    counts = dict(rows(local, "select key, count(*) from metrics group by key"))
    assert counts == {
        "loss": 1499,
        "loss_log10": 1499,
        "grad_norm": 1500,
        "grad_norm_log10": 1500,
        "lr": 1500,
        "nonfinite": 1,
        "layers/h.0 _attn_/grad_norm": 150,
        "verdict/steps_survived": 1,
    }
    assert rows(local, "select sum(value) from metrics where key = 'loss'") == [
        (sum(2.0 + n for n in range(1500) if n != 5),)
    ]
    assert rows(local, "select name, status from runs") == [("gpt DIVERGED@60", "FAILED")]


def test_a_server_that_is_down_at_first_gets_everything_once_it_is_up(gate, server):
    uri = f"http://127.0.0.1:{gate.port}"
    run = record_run(uri, steps=40)
    trial = RunDirectory.create(
        run.path / "trials/t1",
        run_id="t1",
        kind="trial",
        name="03 learning_rate ×0.5: cured",
        parent_path=run.path,
        experiment=run.manifest.experiment,
        tracking_uri=uri,
    )
    report = run.directory("report") / "verdict.html"
    report.write_text("<h1>It was the learning rate</h1>")
    run.add_artifact(report, to="report")
    run.set_note("# It was the learning rate")
    run.log_dataset(name="digits", digest="ab12", source="sklearn", profile={"rows": 1797})
    run.save_view("bisect of gpt")
    trial.finish("FINISHED")
    run.finish("FAILED")

    process = start_uploader(run.path)
    deadline = time.monotonic() + 30
    while "next try in" not in (run.path / "upload.log").read_text():
        assert time.monotonic() < deadline, (run.path / "upload.log").read_text()
        time.sleep(0.1)
    assert pending(run.path) > 0
    gate.open()
    assert wait_for_upload(run.path, 60), (run.path / "upload.log").read_text()
    assert process.wait(30) == 0

    state = read_upload(run.path, uri)
    found = ask(server, "runs/get", run_id=state.store_id)["run"]
    tags = {tag["key"]: tag["value"] for tag in found["data"]["tags"]}
    assert found["info"]["status"] == "FAILED"
    assert tags["stabexp.run_id"] == run.run_id
    assert tags["mlflow.note.content"] == "# It was the learning rate"
    assert tags["mlflow.runColor"] == "#cc0000"
    assert tags["mlflow.user"]
    assert tags["mlflow.source.name"] == sys.argv[0]
    assert found["inputs"]["dataset_inputs"][0]["dataset"]["name"] == "digits"
    params = {param["key"]: param["value"] for param in found["data"]["params"]}
    assert params["optimizer.lr"] == "0.0003"
    assert len(params["note"]) == 6000
    history = ask(server, "metrics/get-history", run_id=state.store_id, metric_key="loss")
    assert [(m["step"], m["value"], m["timestamp"]) for m in history["metrics"]] == [
        (n, 2.0 + n, int((1.7e9 + n) * 1000)) for n in range(40) if n != 5
    ]
    files = ask(server, "artifacts/list", run_id=state.store_id, path="report")["files"]
    assert [file["path"] for file in files] == ["report/verdict.html"]

    child = ask(server, "runs/get", run_id=read_upload(trial.path, uri).store_id)["run"]
    tags = {tag["key"]: tag["value"] for tag in child["data"]["tags"]}
    assert tags["mlflow.parentRunId"] == state.store_id
    assert child["info"]["run_name"] == "03 learning_rate ×0.5: cured"
    experiment = ask(server, "experiments/get", experiment_id=state.experiment_id)["experiment"]
    view = json.loads(experiment["tags"][0]["value"])
    kind, packed = view["state"].split(";")
    assert kind == "deflate"
    assert state.store_id in json.loads(zlib.decompress(base64.b64decode(packed)))["searchFilter"]


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        pytest.param({}, f"next try in 0.5 s: {NOWHERE}: nobody listens there", id="none"),
        pytest.param({"http_proxy": NOWHERE}, "ImportError: MLflow is asked", id="proxy"),
    ],
)
def test_mlflow_is_loaded_only_where_a_server_may_answer(tmp_path, proxy, said):
    run = record_run(NOWHERE, steps=3)
    run.finish("FINISHED")
    (tmp_path / "mlflow.py").write_text("raise ImportError('MLflow is asked')\n")
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-m", "stabexp.tracking.uploader", str(run.path), "--give-up", "0"],
        env=kept | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{PACKAGE_HOME}"} | proxy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert pending(run.path) > 0


def test_the_local_store_keeps_artifacts_below_the_root_and_a_killed_run_is_shown_as_killed(local):
    code = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(PACKAGE_HOME)!r})\n"
        "from stabexp.records import StepRecord\n"
        "from stabexp.tracking import RunDirectory, local_tracking_uri, run_path\n"
        "from stabexp.tracking.uploader import start_uploader\n"
        "run = RunDirectory.create(run_path('r'), run_id='r', kind='run', name='r',\n"
        "    experiment='gpt/small', tracking_uri=local_tracking_uri())\n"
        "start_uploader(run.path)\n"
        "run.add_artifact('run.json')\n"
        "for n in range(100):\n"
        "    run.log_step(StepRecord(step=n, time=1.7e9, loss=1.0, lr=0.1, grad_norm=1.0))\n"
        "assert 'mlflow' not in sys.modules and 'torch' not in sys.modules\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    run = RunDirectory.open(run_path("r"))
    deadline = time.monotonic() + 60
    while run.status() != "KILLED" or pending(run.path):
        assert time.monotonic() < deadline, (run.path / "upload.log").read_text()
        time.sleep(0.1)
    assert rows(local, "select status from runs") == [("KILLED",)]
    assert rows(local, "select count(*) from metrics where key = 'loss'") == [(100,)]
    store_id = read_upload(run.path, local_tracking_uri()).store_id
    artifacts = Path("stabexp_runs/artifacts/gpt%2Fsmall") / store_id / "artifacts"
    assert [file.name for file in artifacts.iterdir()] == ["run.json"]
