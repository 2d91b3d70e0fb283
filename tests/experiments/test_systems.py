"""Every system that the documents ask for has a command, code, a test and a figure that live."""

from __future__ import annotations

import ast
import importlib
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import typer.main

from experiments.systems import IDS, PAGE, page, read_systems
from stabexp import experiment as experiments
from stabexp.cli import app

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
name: rows
task: mlp
optimizer: {name: adamw, lr: 1e-3}
"""
SYSTEMS = read_systems()
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@cache
def functions_of(file: Path) -> set[str]:
    """Return the names of all functions and classes that a file defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)}


def check_command_line(line: str, tmp_path: Path) -> None:
    """Fail when a command, an option or a setting in the line does not exist."""
    words = shlex.split(line)
    if words[:2] == ["python", "-m"]:
        assert (ROOT / words[2].replace(".", "/")).with_suffix(".py").is_file()
        return
    assert words[0] == "stabexp"
    command = COMMANDS[words[1]]
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for word in words[2:]:
        if word.startswith("-"):
            assert word.partition("=")[0] in options, word
    settings = [after for word, after in pairwise(words) if word == "-o"]
    if settings:
        file = tmp_path / "exp.yaml"
        file.write_text(EXPERIMENT)
        experiments.given(file, settings, {})


def test_all_49_rows_are_there_once_and_in_order():
    assert [row.id for row in SYSTEMS] == list(IDS)
    assert len(IDS) == 49


@pytest.mark.parametrize("row", SYSTEMS, ids=lambda row: row.id)
def test_a_row_has_a_living_target(row, tmp_path):
    check_command_line(row.command, tmp_path)
    module, _, name = row.target.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    file, _, test = row.test.partition("::")
    assert test in functions_of(ROOT / file)
    assert any(letter.isdigit() for letter in row.figure), "a figure has a number"


@pytest.mark.parametrize(
    "line",
    [
        "stabexp walk exp.yaml",
        "stabexp run exp.yaml --no-such-option",
        "stabexp run exp.yaml -o stabilisers.no_such=1",
    ],
)
def test_a_dead_command_is_noticed(line, tmp_path):
    with pytest.raises(Exception):  # noqa: B017, PT011  a KeyError, AssertionError or ConfigError
        check_command_line(line, tmp_path)


def test_the_page_is_made_from_the_rows():
    assert PAGE.read_text("utf-8") == page(SYSTEMS), (
        "run: python -m experiments.systems --write docs/systems.md"
    )
