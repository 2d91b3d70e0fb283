"""What README.md shows is true: its examples train as printed, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stabexp import experiment as experiments
from stabexp.cli import app
from stabexp.training import Run, execute

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def examples(tmp_path):
    """Write every code block that begins with "# a-file-name" to that file."""
    found = re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for name, code in found:
        (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


def train(file, *overrides):
    experiment, _ = experiments.load(file, list(overrides))
    program = experiments.program(experiment, base=file.parent)
    records = []
    run = Run(program.settings, on_step=records.append)
    execute(program, run)
    return run, records


def test_the_example_loop_diverges_at_the_rate_it_is_given(examples):
    run, _ = train(examples / "exp.yaml")
    assert run.divergence is not None


def test_the_example_loop_learns_at_its_own_rate(examples):
    run, records = train(examples / "exp.yaml", "train.args={}")
    assert run.divergence is None
    assert records[-1].loss < 0.5 * records[0].loss


@pytest.mark.parametrize("precision", ["fp32", "fp64", "bf16"])
def test_the_example_task_learns_in(examples, precision):
    run, records = train(examples / "task.yaml", f"precision={precision}")
    assert run.divergence is None
    assert records[-1].loss < 0.5 * records[0].loss


def test_every_command_it_names_exists():
    known = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if command.callback
    }
    named = set(re.findall(r"(?:^|`|&& )stabexp ([a-z-]+)", TEXT, re.MULTILINE))
    assert named - known == set()
    assert {"run", "bisect", "log", "ui", "sync", "list", "schema"} <= named


def test_every_file_it_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []
