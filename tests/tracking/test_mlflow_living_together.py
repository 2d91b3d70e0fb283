"""A user's own MLflow logging and ours, side by side on a real server: each has exactly its own.

The scripts run as a user would run them, in a process of their own: MLflow's globals are theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stabexp.tracking.uploader import wait_for_upload

pytestmark = pytest.mark.slow

SCRIPT = """\
import json
import os
import sys

import mlflow
import torch
from torch import nn

import stabexp

RUN_ID = os.environ.get("RUN_TO_LOG_TO")
{top}

def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, x @ torch.randn(8, 1, generator=generator))


def loop(run, log):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    ramp = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    for step, (x, y) in enumerate(run.steps(data(), model=model, optimizer=optimizer,
                                            scheduler=ramp)):
        loss = ((model(x) - y) ** 2).mean()
        run.log(loss)
        log(step, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ramp.step()


def train(run):
{body}

SETTINGS = {{"steps": 60, "threads": 1, "checkpoint": {{"every": 5}}}}


def bisect(run_id):
    # A few replays; the first is unchanged, and reproduces the run with all it logs. With another
    # budget it is another bisect: one in this process, one with workers.
    for workers in map(int, sys.argv[1:]):
        stabexp.bisect(run_id, workers=workers, budget=50 + workers)
        control = stabexp.load(run_id).trial_records[0]
        assert (control.outcome, control.mismatch) == ("diverged", None), control.note


if __name__ == "__main__":
{main}
"""

LOGS = """\
    mlflow.log_param("width", 16)
    def log(step, loss):
        mlflow.log_metric("mine", 1.0, step=step)
    loop(run, log)
    mlflow.log_text("done", "done.txt")
"""

AUTOLOG = """\
    mlflow.autolog(silent=True)
    mlflow.pytorch.autolog()
"""

INSIDE = """\
    mlflow.set_tracking_uri(os.environ["SERVER"])
    mlflow.set_experiment(os.environ["THEIRS"])
    with mlflow.start_run() as mine:
        before = (mlflow.get_tracking_uri(), dict(os.environ))
        result = stabexp.run(train, **SETTINGS)
        assert mlflow.active_run().info.run_id == mine.info.run_id
        bisect(result.run_id)
        assert mlflow.active_run().info.run_id == mine.info.run_id
        after = (mlflow.get_tracking_uri(), dict(os.environ))
        for name in ("CUBLAS_WORKSPACE_CONFIG", "TORCHINDUCTOR_CACHE_DIR"):  # for torch, by torch
            after[1].pop(name, None)
            before[1].pop(name, None)
        assert after == before
        mlflow.log_metric("after", 2.0)
    print(json.dumps([result.run_id, result.steps]))
"""

OUTSIDE = """\
    os.environ["MLFLOW_TRACKING_URI"] = os.environ["SERVER"]
    result = stabexp.run(train, **SETTINGS)
    before = mlflow.active_run()
    bisect(result.run_id)
    assert mlflow.active_run() is before
    print(json.dumps([result.run_id, result.steps]))
"""

OWN_RUN = """\
    mlflow.set_tracking_uri(os.environ["SERVER"])
    mlflow.set_experiment(os.environ["THEIRS"])
    with mlflow.start_run(run_name="made by the function"):
""" + "".join(f"    {line}\n" for line in LOGS.splitlines())

BY_ID = """\
    client = mlflow.MlflowClient(os.environ["SERVER"])
    def log(step, loss):
        client.log_metric(RUN_ID, "mine", 1.0, step=step)
    loop(run, log)
    client.log_param(RUN_ID, "width", 16)
    client.log_text(RUN_ID, "done", "done.txt")
"""

ALREADY_OPEN = (
    """\
    assert mlflow.active_run() is not None
"""
    + LOGS
)

ASKS = """\
    if run.replaying:
        assert mlflow.active_run() is None
        return loop(run, lambda step, loss: None)
    with mlflow.start_run():
""" + "".join(f"    {line}\n" for line in LOGS.splitlines())


class Server:
    """What a real server has, asked over its REST interface."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, call: str, **body) -> dict:
        request = urllib.request.Request(
            f"{self.address}/api/2.0/mlflow/{call}",
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def experiments(self) -> dict[str, str]:
        found = self.ask("experiments/search", max_results=1000)["experiments"]
        return {each["name"]: each["experiment_id"] for each in found}

    def runs(self, *experiment_ids: str) -> list[dict]:
        body = {"experiment_ids": list(experiment_ids), "max_results": 1000}
        return self.ask("runs/search", **body).get("runs", [])

    def history(self, run: dict, key: str) -> list[dict]:
        query = f"metrics/get-history?run_id={run['info']['run_id']}&metric_key={key}"
        return self.ask(query).get("metrics", [])

    def artifacts(self, run: dict) -> list[str]:
        found = self.ask(f"artifacts/list?run_id={run['info']['run_id']}").get("files", [])
        return [file["path"] for file in found]


def values(run: dict, kind: str) -> dict[str, object]:
    return {item["key"]: item["value"] for item in run["data"].get(kind, [])}


@pytest.fixture
def theirs(server) -> Server:
    return Server(server)


def call(
    folder: Path, server: str, workers: tuple[int, ...], *, body: str, main: str, **more
) -> tuple[str, int]:
    """Run a user's script to its end; return the run's id and how many steps it made."""
    script = SCRIPT.format(body=body, main=main, top=more.pop("top", ""))
    (folder / "train.py").write_text(script, "utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment = kept | {"SERVER": server, "MLFLOW_DISABLE_TELEMETRY": "true"} | more
    done = subprocess.run(
        [sys.executable, "train.py", *map(str, workers)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    run_id, steps = json.loads(line)
    # On a busy machine the last of it arrives after the script has ended.
    assert wait_for_upload(folder / "stabexp_runs" / "runs" / run_id, 120)
    return run_id, steps


@pytest.mark.parametrize(
    ("name", "body", "main", "extra", "workers"),
    [
        pytest.param("open", LOGS, AUTOLOG + INSIDE, {"after": 2.0}, (0, 2), id="a run is open"),
        pytest.param("relies", ALREADY_OPEN, INSIDE, {"after": 2.0}, (0, 1), id="relies on one"),
        pytest.param("own", OWN_RUN, OUTSIDE, {}, (0, 2), id="opens one, names the server itself"),
        pytest.param("asks", ASKS, OUTSIDE, {}, (1,), id="asks whether it is a replay"),
        pytest.param("id", BY_ID, OUTSIDE, {}, (1,), id="writes by the id of a run"),
        pytest.param("env", LOGS, OUTSIDE, {}, (0, 1), id="the environment names a run"),
    ],
)
def test_each_has_exactly_its_own(tmp_path, theirs, name, body, main, extra, workers):
    experiment = f"user {name}"
    made = theirs.ask("experiments/create", name=experiment)["experiment_id"]
    more = {"THEIRS": experiment}
    if name in {"id", "env"}:
        run = theirs.ask("runs/create", experiment_id=made, start_time=1)["run"]
        more["RUN_TO_LOG_TO" if name == "id" else "MLFLOW_RUN_ID"] = run["info"]["run_id"]
    if name == "asks":
        more["MLFLOW_EXPERIMENT_NAME"] = experiment
    kept = {run["info"]["run_id"] for run in theirs.runs(*theirs.experiments().values())}
    run_id, steps = call(tmp_path, theirs.address, workers, body=body, main=main, **more)

    (user,) = theirs.runs(made)
    assert values(user, "metrics") == {"mine": 1.0, **extra}
    assert [m["step"] for m in theirs.history(user, "mine")] == list(range(steps))
    assert values(user, "params") == {"width": "16"}
    assert theirs.artifacts(user) == ["done.txt"]
    assert not any(key.startswith("stabexp") for key in values(user, "tags"))

    # Whatever else is new on the server is the run, its bisects and their trials.
    found = theirs.experiments()
    ours = {
        run["info"]["run_id"]: run
        for run in theirs.runs(*found.values())
        if run["info"]["run_id"] not in kept | {user["info"]["run_id"]}
    }
    assert {run["info"]["experiment_id"] for run in ours.values()} == {found["stabexp"]}
    kinds = [values(run, "tags")["stabexp.kind"] for run in ours.values()]
    assert (kinds.count("run"), kinds.count("bisect")) == (1, len(workers))
    assert kinds.count("trial") == len(ours) - 1 - len(workers) >= len(workers)
    for run in ours.values():
        assert not {"mine", "after"} & values(run, "metrics").keys()
        assert "width" not in values(run, "params")
        assert theirs.artifacts(run) != ["done.txt"]
    (own,) = [r for r in ours.values() if values(r, "tags")["stabexp.kind"] == "run"]
    assert values(own, "tags")["stabexp.run_id"] == run_id
    assert len(theirs.history(own, "grad_norm")) == steps
