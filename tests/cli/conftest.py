"""A root with a run that diverged, one that did not, and a bisect: for commands to work on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import NOWHERE

from stabexp import api

EXPERIMENT = """\
name: {name}
seed: 0
steps: 60
threads: 1
task: mlp
optimizer: {{name: sgd, lr: {lr}}}
schedule: {{name: constant, warmup_steps: 50}}
checkpoint: {{every: 5}}
tracking: {{uri: "{uri}"}}
"""


def experiment(name: str, lr: float) -> str:
    return EXPERIMENT.format(name=name, lr=lr, uri=NOWHERE)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """A folder with late.yaml, which diverges at step 15, calm.yaml, and both in root/."""
    folder = tmp_path_factory.mktemp("cli")
    for name, lr in (("late", 8.0), ("calm", 0.05)):
        (folder / f"{name}.yaml").write_text(experiment(name, lr), "utf-8")
        api.run(folder / f"{name}.yaml", root=folder / "root", drain_seconds=0)
    api.bisect(
        "late",
        root=folder / "root",
        variables=["learning_rate"],
        workers=0,
        drain_seconds=0,
    )
    return folder


@pytest.fixture
def stabexp_command(stabexp_command, monkeypatch):
    """The same, with the 80 columns of a log file."""
    monkeypatch.delenv("COLUMNS")
    return stabexp_command


@pytest.fixture
def here(recorded, tmp_path, monkeypatch) -> Path:
    """A copy of it as the working directory, with short names: root/, late.yaml, calm.yaml."""
    shutil.copytree(recorded, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("STABEXP_ROOT", "root")
    return tmp_path / "here"
