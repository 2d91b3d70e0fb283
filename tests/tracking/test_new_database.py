"""Two processes that open one new store at once both get it, whichever is first."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import stabexp
from stabexp.tracking.new_database import ensure_whole

HOME = Path(stabexp.__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(HOME), "MLFLOW_DISABLE_TELEMETRY": "true"}
OURS = "from stabexp.tracking.mlflow_store import MlflowStore; s = MlflowStore({uri!r}); "
OURS += "print(s._client.search_experiments()[0].name)"
THEIRS = "import mlflow; c = mlflow.MlflowClient({uri!r}); "
THEIRS += "c.create_experiment('mine'); print(len(c.search_experiments()))"


def started(code: str, file: Path) -> subprocess.Popen[str]:
    text = code.format(uri=f"sqlite:///{file}")
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def begun(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


@pytest.mark.slow
def test_a_training_that_makes_the_store_while_we_do_is_not_disturbed(tmp_path):
    file = tmp_path / "new" / "mlflow.db"
    ours = started(OURS, file)
    wait_for(lambda: any(map(begun, file.parent.glob(".mlflow.db.*.new"))), ours)
    ours.send_signal(signal.SIGSTOP)
    try:
        theirs = started(THEIRS, file)
        out, errors = theirs.communicate()
        assert (theirs.returncode, out) == (0, "2\n"), errors
    finally:
        ours.send_signal(signal.SIGCONT)
    out, errors = ours.communicate()
    assert (ours.returncode, out) in {(0, "mine\n"), (0, "Default\n")}, errors
    assert [path.name for path in file.parent.iterdir()] == ["mlflow.db"]
    with closing(sqlite3.connect(file)) as database:
        names = {name for (name,) in database.execute("select name from experiments")}
    assert names == {"Default", "mine"}


@pytest.mark.slow
def test_a_store_that_a_training_is_making_is_left_alone_until_it_is_whole(tmp_path):
    file = tmp_path / "mlflow.db"
    theirs = started(THEIRS, file)
    wait_for(lambda: begun(file), theirs)
    theirs.send_signal(signal.SIGSTOP)
    try:
        before = file.read_bytes()
        ours = started(OURS, file)
        time.sleep(4)
        assert ours.poll() is None
        assert file.read_bytes() == before
    finally:
        theirs.send_signal(signal.SIGCONT)
    out, errors = theirs.communicate()
    assert (theirs.returncode, out) == (0, "2\n"), errors
    out, errors = ours.communicate()
    assert ours.returncode == 0, errors


def test_what_somebody_else_has_made_meanwhile_is_kept(tmp_path, database):
    file = tmp_path / "mlflow.db"

    def make(new: Path) -> None:
        new.write_bytes(b"ours")
        file.write_bytes(database.read_bytes())

    ensure_whole(file, make)
    assert file.read_bytes() == database.read_bytes()
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_attempt_leaves_nothing_behind(tmp_path):
    def make(new: Path) -> None:
        new.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ensure_whole(tmp_path / "mlflow.db", make)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_nobody_finishes_is_not_waited_for_without_end(tmp_path):
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"")
    ensure_whole(file, Path.touch, patience=0.3)
    assert file.read_bytes() == b""
