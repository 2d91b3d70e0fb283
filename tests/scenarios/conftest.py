"""The real command line, small runs that diverge, and no process left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stabexp import api

DIVERGING = """\
name: late
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {name: sgd, lr: 8.0}
schedule: {name: constant, warmup_steps: 50}
checkpoint: {every: 5, keep: 8}
"""

HEALTHY = """\
name: own
seed: 3
steps: 60
threads: 1
train: {name: own.py:train, args: {lr: 0.02}}
batch: {size: 16}
checkpoint: {every: 7}
"""

OWN = """\
import time

import torch
from torch import nn


class Points(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(256, 8, generator=generator)
        self.y = self.x @ torch.randn(8, 1, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def train(run, lr=1.0, pause=0.0):
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    ramp = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    for x, y in run.steps(Points(), model=model, optimizer=optimizer, scheduler=ramp):
        time.sleep(pause)
        with run.autocast():
            loss = ((model(x) - y) ** 2).mean()
        run.log(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ramp.step()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _processes(word: str) -> dict[int, str]:
    """Processes, other than this one, whose command line holds a word."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if word in command:
                found[int(folder.name)] = command
    return found


def _end_uploaders(folder: Path) -> None:
    """End the uploaders below a folder: without a server they would wait ten minutes for one."""
    for pid, command in _processes(str(folder)).items():
        if "stabexp.tracking.uploader" in command:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def processes():
    """Find the processes whose command line holds a word."""
    return _processes


@pytest.fixture
def end_uploaders():
    """End the uploaders of the runs below a folder."""
    return _end_uploaders


@pytest.fixture
def wait_for():
    """Wait until something is the case."""

    def call(condition: Callable[[], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    return call


@pytest.fixture(autouse=True)
def _no_uploader_left(tmp_path) -> Iterator[None]:
    yield
    _end_uploaders(tmp_path)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch) -> str:
    """The address of an MLflow server that is down; experiments use it unless they name one."""
    uri = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture(autouse=True)
def _wide(monkeypatch) -> None:
    """Messages are not wrapped: what is looked for in them may hold a long path."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def cli():
    """Run a command to its end; whatever happens, the user sees no traceback."""

    def call(*arguments: object, timeout: float = 240, **options):
        command = [sys.executable, "-m", "stabexp.cli", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, **options
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


@pytest.fixture
def start():
    """Start a command in a process group of its own, as a terminal would."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stabexp.cli", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def write(tmp_path):
    """Write a file into the working directory."""

    def call(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / name

    return call


@pytest.fixture
def own_loop(write):
    """Write an experiment with a training function of one's own, healthy at the rate it has."""
    write("own.py", OWN)
    return write("own.yaml", HEALTHY)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """A root with one run that diverged at step 15; copy it before changing anything."""
    folder = tmp_path_factory.mktemp("diverged")
    file = folder / "late.yaml"
    file.write_text(DIVERGING, "utf-8")
    uri = f"tracking.uri=http://127.0.0.1:{free_port()}"
    result = api.run(file, [uri], root=folder / "root", drain_seconds=0)
    assert result.status == "diverged"
    _end_uploaders(folder)
    return folder / "root"


@pytest.fixture
def diverged(recorded, tmp_path) -> Path:
    """The directory of a run that diverged, below `tmp_path / "root"`."""
    shutil.copytree(recorded, tmp_path / "root")
    (directory,) = (tmp_path / "root" / "runs").iterdir()
    return directory
