"""`stabexp ui` opens the page that was asked for, in a browser that is started for real."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import stabexp
from stabexp.errors import RunNotFoundError
from stabexp.tracking.pages import has_screen, in_database
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.ui import serve
from stabexp.tracking.upload_state import Upload, write_upload

HOME = Path(stabexp.__file__).parent.parent
BASE = "http://h"
SERVER = "http://tracking.example:5000"

ENTRIES = (
    # store id, local id, kind, parent, cause, role
    ("r1", "gpt-1", "run", "", "clip_norm", "run"),
    ("r2", "gpt-2", "run", "", "", "run"),
    ("b1", "gpt-1.bisect-1", "bisect", "r1", "clip_norm", "bisect"),
    ("b2", "gpt-1.bisect-2", "bisect", "r1", "clip_norm", "bisect"),
    ("t1", "gpt-1.bisect-2.x", "trial", "b2", "", "control"),
    ("t2", "gpt-1.bisect-2.y", "trial", "b2", "", "scan"),
    ("t3", "gpt-1.bisect-2.z", "trial", "b2", "", "dose"),
)


@pytest.fixture(scope="module")
def entries(tmp_path_factory, database) -> Path:
    """A real MLflow database with rows for a bisected run and another one."""
    file = tmp_path_factory.mktemp("entries") / "mlflow.db"
    file.write_bytes(database.read_bytes())
    with closing(sqlite3.connect(file)) as rows, rows:
        for at, (store_id, name, kind, parent, cause, role) in enumerate(ENTRIES):
            rows.execute(
                "insert into runs (run_uuid, name, status, start_time, lifecycle_stage, "
                "experiment_id) values (?, ?, 'FINISHED', ?, 'active', 0)",
                (store_id, name, at),
            )
            tags = {"stabexp.run_id": name, "stabexp.kind": kind, "stabexp.role": role}
            tags |= {"mlflow.parentRunId": parent} if parent else {}
            tags |= {"stabexp.cause": cause} if cause else {}
            for key, value in tags.items():
                rows.execute("insert into tags values (?, ?, ?)", (key, value, store_id))
    return file


@pytest.mark.parametrize(
    ("wanted", "page"),
    [
        pytest.param(None, r"runs\?.*viewStateShareKey=stabexpruns$", id="nothing: all runs"),
        pytest.param("gpt-1", "stabexp-gpt-1.bisect-2-trials$", id="a bisected run: its trials"),
        pytest.param("gpt-2", r"/runs/r2\?", id="any other run: its page"),
        pytest.param("gpt-1.bisect-1", "stabexp-gpt-1.bisect-1-trials$", id="an earlier bisect"),
        pytest.param("b1", "stabexp-gpt-1.bisect-1-trials$", id="a bisect by its MLflow id"),
        pytest.param("t3", r"/runs/t3\?", id="a trial by its MLflow id"),
        pytest.param("gpt-1.bisect-2.z", r"/runs/t3\?", id="a trial by its local id"),
    ],
)
def test_the_page_is_that_of_what_was_asked_for(entries, wanted, page):
    shown = in_database(entries, wanted)
    assert re.search(page, shown.page(BASE))
    assert shown.page(BASE) in shown.links(BASE).values()


def test_the_comparison_is_of_the_trials_in_order_without_the_scan(entries):
    assert in_database(entries, "gpt-1").trials == ("t1", "t3")


def test_what_is_not_there_is_named(entries):
    with pytest.raises(RunNotFoundError, match="run gpt-9: is not in"):
        in_database(entries, "gpt-9")


@pytest.mark.parametrize(
    ("environment", "platform", "screen"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, "linux", False),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", False),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "1 2 3 4", "BROWSER": "lynx"}, "linux", True),
    ],
)
def test_a_browser_is_started_only_where_it_is_seen(environment, platform, screen):
    assert has_screen(environment, platform) is screen


@pytest.fixture
def on_a_server(tmp_path) -> Path:
    """The root of a run that has arrived at a tracking server."""
    path = tmp_path / "runs/gpt-1"
    shared = {"experiment": "e", "tracking_uri": SERVER}
    RunDirectory.create(path, run_id="gpt-1", kind="run", name="gpt-1", **shared)
    write_upload(path, SERVER, Upload(store_id="aa", experiment_id="7"))
    return tmp_path


def command(root: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "stabexp.cli", "ui", "--root", str(root), *arguments]


def environment(**more: str) -> dict[str, str]:
    left_out = {"BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "MLFLOW_TRACKING_URI"}
    kept = {key: value for key, value in os.environ.items() if key not in left_out}
    return kept | {"PYTHONPATH": str(HOME), "PYTHONUNBUFFERED": "1"} | more


def test_the_default_browser_is_given_the_page_and_no_open_keeps_it_shut(on_a_server, tmp_path):
    seen = tmp_path / "seen.txt"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    ask = {"env": environment(BROWSER=str(browser)), "capture_output": True, "text": True}
    said = subprocess.run(command(on_a_server, "gpt-1", "--no-open"), check=True, **ask).stdout
    assert "opening" not in said
    assert not seen.exists()
    said = subprocess.run(command(on_a_server, "gpt-1"), check=True, **ask).stdout
    assert f"opening {SERVER}/#/experiments/7/runs/aa?" in said
    for _ in range(100):
        if seen.exists():
            break
        time.sleep(0.1)
    assert seen.read_text() == f"{SERVER}/#/experiments/7/runs/aa?workflowType=machine_learning"


def test_as_json_the_addresses_are_one_document(on_a_server):
    told: list[dict] = []
    said: list[str] = []
    serve(on_a_server, run_id="gpt-1", port=0, say=said.append, tell=told.append)
    assert said == []
    assert told[0]["open"] == told[0]["links"]["the run"]
    assert list(told[0]["links"]) == ["the run", "all runs"]


def test_as_json_the_document_comes_before_the_server_ends(tmp_path, database):
    (tmp_path / "mlflow.db").write_bytes(database.read_bytes())
    with subprocess.Popen(
        command(tmp_path, "--json", "--port", "0"), stdout=subprocess.PIPE, env=environment()
    ) as process:
        document = b""
        while not document.endswith(b"\n}\n"):
            line = process.stdout.readline()
            assert line, document
            document += line
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.wait(30) == 0
    assert b'"open": "http://127.0.0.1:' in document
