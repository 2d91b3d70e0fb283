"""kill -9 of a bisect, again and again: nothing is lost, nothing is done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stabexp import api
from stabexp.records import to_json


def bisect_process(run_id: str, root: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "stabexp.cli", "bisect", run_id]
    command += ["--thorough", "--root", str(root)]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def comparable(verdict) -> dict:
    """A verdict without the figures that a restart may change: times and trial names."""
    facts = to_json(verdict)
    for key in ("run_id", "bisect_id", "seconds", "next_command"):
        del facts[key]
    return facts


@pytest.mark.slow
def test_ten_kills_change_nothing(tmp_path, monkeypatch, recorded, diverged):
    undisturbed = {"thorough": True, "workers": 0, "drain_seconds": 0}
    expected = api.bisect(diverged.name, root=diverged.parents[1], **undisturbed)

    # The same training once more, for a bisect that is killed again and again.
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # MLflow is what this is about, so it is up
    root = tmp_path / "killed"
    run = api.run(recorded.parent / "late.yaml", root=root, drain_seconds=60)
    bisect = run.directory / "bisects" / "bisect-1"
    rng = random.Random(5)
    finished_before: dict[str, dict] = {}
    for kill in range(10):
        process = bisect_process(run.run_id, root)
        # Later kills come later, so that each start gets somewhere new before it dies.
        wait_for_trials(
            bisect, process, count=min(len(finished_before) + rng.choice([0, 1, 3]), 18)
        )
        time.sleep(rng.uniform(0.0, 0.4))
        with suppress(ProcessLookupError):  # it may be done already
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        for name, content in finished_before.items():
            assert finished(bisect)[name] == content, kill
        finished_before = finished(bisect)
    process = bisect_process(run.run_id, root)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()

    verdict = api.load(run.run_id, root=root).verdict
    assert comparable(verdict) == comparable(expected)
    keys = [name.partition("-")[0] for name in finished(bisect)]
    assert len(keys) == len(set(keys)), "a finished trial was run again"
    assert wait_until(lambda: not running_in_mlflow(root)), running_in_mlflow(root)


def finished(bisect: Path) -> dict[str, dict]:
    """Finished trials by directory, without their place in the order, which a kill may leave open.

    Their wall time is in it: a trial that was run again would have another.
    """
    found = {}
    for file in bisect.glob("trials/*/trial.json"):
        record = json.loads(file.read_text("utf-8"))
        del record["number"], record["name"]
        found[file.parent.name] = record
    return found


def wait_for_trials(bisect: Path, process: subprocess.Popen[bytes], *, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(finished(bisect)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running_in_mlflow(root: Path) -> list[str]:
    with sqlite3.connect(root / "mlflow.db", timeout=30) as store:
        rows = store.execute("select name from runs where status in ('RUNNING', 'SCHEDULED')")
        return [name for (name,) in rows]


def wait_until(condition, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return condition()


def test_a_bisect_that_is_done_answers_at_once(diverged):
    wishes = {"variables": ["learning_rate"], "workers": 0, "drain_seconds": 0}
    first = api.bisect(diverged.name, root=diverged.parents[1], **wishes)
    files = {file: file.stat().st_mtime_ns for file in diverged.glob("bisects/*/trials/*/*")}
    assert files
    again = api.bisect(diverged.name, root=diverged.parents[1], **wishes)
    assert again == first
    after = {file: file.stat().st_mtime_ns for file in diverged.glob("bisects/*/trials/*/*")}
    assert after == files
    log = json.loads((diverged / "bisects/bisect-1/report/verdict.json").read_text("utf-8"))
    assert len(log["trials"]) == first.trials
