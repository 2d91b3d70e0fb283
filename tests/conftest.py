"""Settings every test shares: one thread, no telemetry, no network."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from command_line import NOWHERE, Done
from hypothesis import HealthCheck, settings
from running_order import spread

# The experiments lie beside the package. Whoever imports them first, it is not tests/experiments.
if (root := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(root)
torch.set_num_threads(1)
# How long an example takes says something about the machine's other work, not about the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_collection_modifyitems(items):
    items[:] = spread(items)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path, monkeypatch):
    """Every test works in an empty directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def nowhere(monkeypatch) -> str:
    """The address of an MLflow server that is down, for runs that are not about MLflow.

    What would send them there does not load MLflow then, nor make a database for each.
    """
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    return NOWHERE


@pytest.fixture(scope="module")
def no_uploader_left(tmp_path_factory) -> Iterator[None]:
    """End the uploaders that a module's tests started: they would wait ten minutes for a server."""
    yield
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode() if folder.name.isdigit() else ""
            ours = str(tmp_path_factory.getbasetemp()) in command
            if ours and "stabexp.tracking.uploader" in command:
                os.kill(int(folder.name), signal.SIGKILL)


@pytest.fixture
def stabexp_command(monkeypatch, capsys):
    """Run a command in this process, which has torch loaded already."""
    from stabexp import cli

    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOWHERE)
    monkeypatch.setenv("COLUMNS", "1000")  # pytest's long paths must not break every message

    def call(*arguments: object) -> Done:
        monkeypatch.setattr("sys.argv", ["stabexp", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, errors = capsys.readouterr()
        return Done(ended.value.code or 0, out, errors)

    return call
