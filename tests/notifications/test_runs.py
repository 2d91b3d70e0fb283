"""Real trainings tell what happens to them, and none is changed, held up or broken by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stabexp import api
from stabexp.notifications.ledger import LEDGER, Ledger
from stabexp.tracking import RunDirectory

COMMAND = Path(sys.executable).with_name("stabexp")
DIVERGING = """\
name: late
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {name: sgd, lr: 8.0}
schedule: {name: constant, warmup_steps: 50}
checkpoint: {every: 5, keep: 8}
bisect: {workers: 0}
"""
TOLD = """\
on_event:
  - {on: [divergence, verdict, end], webhook: "${HOOK}"}
"""


@pytest.fixture
def exp(tmp_path):
    def write(more: str = TOLD) -> Path:
        path = tmp_path / "exp.yaml"
        path.write_text(DIVERGING + more)
        return path

    return write


def told(receiver):
    return [request.json["event"] for request in receiver.received]


def test_a_run_tells_of_its_divergence_and_of_its_end_once(
    exp, receiver, nowhere, monkeypatch, until
):
    monkeypatch.setenv("HOOK", receiver.url)
    result = api.run(exp(), drain_seconds=0)
    until(lambda: len(receiver.received) >= 2)
    assert told(receiver) == ["divergence", "end"]
    event = receiver.received[0].json
    assert (event["run_id"], event["step"]) == (result.run_id, result.divergence.detected)
    assert result.notices == ()


def test_losses_and_parameters_are_bit_for_bit_those_of_a_run_that_tells_nobody(
    exp, receiver, nowhere, monkeypatch
):
    monkeypatch.setenv("HOOK", receiver.url)
    courses = []
    for more in (TOLD, ""):
        steps = RunDirectory.open(api.run(exp(more), drain_seconds=0).directory).read_steps()
        courses.append([(s.step, repr(s.loss), s.digest) for s in steps])
    assert courses[0] == courses[1]
    assert courses[0]


def test_a_verdict_is_told_and_no_replay_tells_anything(exp, receiver, nowhere, monkeypatch, until):
    monkeypatch.setenv("HOOK", receiver.url)
    run_id = api.run(exp(), drain_seconds=0).run_id
    verdict = api.bisect(run_id, drain_seconds=0)
    until(lambda: "verdict" in told(receiver))
    assert told(receiver) == ["divergence", "end", "verdict"]
    event = receiver.received[-1].json
    assert (event["cause"], event["confidence"]) == (verdict.cause, verdict.confidence)
    assert event["run_id"] == run_id
    assert Path(event["report"]).exists()
    assert len(list(Path().rglob(LEDGER))) == 1


def test_a_command_that_hangs_holds_up_no_training(exp, nowhere, tmp_path, until):
    line = "on_event: {on: divergence, command: 'touch begun; sleep 600; touch done', timeout: 1}"
    result = api.run(exp(line), drain_seconds=0)
    assert result.status == "diverged"
    until(lambda: Ledger.read(result.directory).deliveries)
    (first, *_) = Ledger.read(result.directory).deliveries
    assert (first.arrived, first.answer) == (False, "ended after 1 s")
    assert (tmp_path / "begun").exists()
    assert not (tmp_path / "done").exists()


def test_a_variable_that_is_not_set_is_told_at_the_end_of_the_run(exp, nowhere):
    result = api.run(exp(), drain_seconds=0)
    assert result.notices == (
        "on_event: HOOK not set here; set it, and send what is left: stabexp sync",
    )


def test_no_secret_is_anywhere_in_what_a_run_leaves(exp, receiver, nowhere, monkeypatch, until):
    monkeypatch.setenv("HOOK", receiver.url)
    receiver.answers = [(404, {})]
    more = 'on_event: [{on: [divergence, end], webhook: "${HOOK}"}]'
    result = api.run(exp(more), drain_seconds=0)
    until(lambda: len(Ledger.read(result.directory).deliveries) == 2)
    for file in (path for path in result.directory.rglob("*") if path.is_file()):
        assert b"s3cr3t" not in file.read_bytes(), file
    assert "${HOOK}" in (result.directory / LEDGER).read_text()


def test_killed_between_divergence_and_delivery_it_is_told_by_sync(
    exp, down, tmp_path, until, stabexp_command, monkeypatch
):
    environment = {**os.environ, "HOOK": down.url, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    subprocess.run([COMMAND, "run", exp(), "-q"], env=environment, check=False, capture_output=True)
    (directory,) = (tmp_path / "stabexp_runs" / "runs").iterdir()
    until(lambda: Ledger.read(directory).deliveries)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().decode()
            except OSError:
                continue
            if str(directory) in command:
                os.kill(int(folder.name), signal.SIGKILL)
    (event, *_) = Ledger.read(directory).events.values()
    down.start()
    monkeypatch.setenv("HOOK", down.url)
    assert "2 events delivered" in stabexp_command("sync").out
    assert told(down) == ["divergence", "end"]
    assert down.received[0].headers["Idempotency-Key"] == event.id
    assert "delivered" not in stabexp_command("sync").out


def test_the_command_shows_what_was_told_and_what_came_of_it(
    exp, receiver, nowhere, monkeypatch, until, stabexp_command
):
    monkeypatch.setenv("HOOK", receiver.url)
    result = api.run(exp(), drain_seconds=0)
    until(lambda: len(Ledger.read(result.directory).deliveries) == 2)
    shown = stabexp_command("events", "late").out
    assert "webhook ${HOOK}" in shown
    assert "divergence  arrived: 200 you asked /hook" not in shown  # a part of the secret
    assert "divergence  arrived: 200" in shown
    data = json.loads(stabexp_command("events", "late", "--json").out)
    assert [d["event"] for d in data["deliveries"]] == ["divergence", "end"]
    assert data["waiting"] == 0


def test_receivers_can_be_tried_before_it_matters(exp, receiver, monkeypatch, stabexp_command):
    monkeypatch.setenv("HOOK", receiver.url)
    assert stabexp_command("events", exp(), "--try").code == 0
    assert receiver.received[0].json["message"].startswith("a trial")
    receiver.answers = [(403, {})]
    failed = stabexp_command("events", exp(), "--try")
    assert failed.code == 1
    assert "FAILED" in failed.out
