"""What holds for every command: one JSON document, lines that fit, errors in both forms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli.every_command import COMMANDS, SERVING, SLOW

from stabexp.cli import app
from stabexp.reporting.columns import columns

pytestmark = pytest.mark.usefixtures("no_uploader_left")

PAGE = Path(__file__).parents[2] / "docs" / "scripting.md"
COPIED = re.compile(r"\s*(?:stabexp|python|pip|mlflow|git) |^\s+[\w.]+: \S")
"""A command, or a value of an experiment file: what is copied stays on one line."""


def names() -> dict[str, Any]:
    return {
        command.name or command.callback.__name__: command.callback
        for command in app.registered_commands
        if command.callback is not None
    }


def strict(text: str) -> Any:
    """Read JSON as RFC 8259 has it: no NaN, no key twice, nothing after the document."""

    def refuse(token: str) -> None:
        raise ValueError(f"{token} is no JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def documented(name: str) -> set[str]:
    """Return the keys that the page names for a command."""
    text = PAGE.read_text("utf-8").partition(f"\n### {name}\n")[2]
    return set(re.findall(r"(?m)^\| `(\w+)` \|", re.split(r"\n##", text)[0]))


def too_wide(text: str, width: int) -> list[str]:
    """Return the lines that are wider and could have been broken."""
    return [
        line
        for line in text.splitlines()
        if columns(line) > width and len(line.split()) > 1 and not COPIED.match(line)
    ]


def test_every_command_is_in_the_table():
    assert set(names()) == {*COMMANDS, *SLOW, *SERVING}


@pytest.mark.parametrize("name", sorted({*COMMANDS, *SLOW}))
def test_every_command_has_json(name):
    assert "as_json" in names()[name].__annotations__, f"stabexp {name} has no --json"


@pytest.mark.parametrize("name", COMMANDS)
def test_its_json_is_one_strict_document_and_nothing_else(stabexp_command, here, name):
    arguments, code = COMMANDS[name]
    done = stabexp_command(name, *arguments, "--json")
    assert done.code == code, done.errors
    answer = strict(done.out)
    assert isinstance(answer, dict)
    if name != "schema":
        assert documented(name) == set(answer), f"docs/scripting.md: {name}"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "recover" else [])
        for name in COMMANDS
        if name != "schema"  # is JSON
    ],
)
def test_in_a_log_file_no_line_is_wider_than_80_columns(stabexp_command, here, name):
    arguments, code = COMMANDS[name]
    done = stabexp_command(name, *arguments)
    assert done.code == code, done.errors
    assert done.out.strip()
    assert too_wide(done.out, 80) + too_wide(done.errors, 80) == []
    assert "\x1b" not in done.out + done.errors


@pytest.mark.parametrize("name", ["log", "diagnose", "clip-advice", "check", "lr-find"])
def test_a_narrow_terminal_gets_narrow_lines(stabexp_command, here, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "60")
    arguments, _ = COMMANDS[name]
    done = stabexp_command(name, *arguments)
    shown = [line for line in too_wide(done.out, 60) if not _of_a_table(line)]
    assert shown == []


def _of_a_table(line: str) -> bool:
    """Whether a line is a row or the curve: these keep their columns."""
    return len(re.findall(r"\S {2,}(?=\S)", line.strip())) > 2 or "█" in line


@pytest.mark.parametrize("name", sorted({*COMMANDS, *SLOW}))
def test_help_fits_and_needs_no_training_library(stabexp_command, name):
    done = stabexp_command(name, "--help")
    assert done.code == 0
    assert too_wide(done.out, 80) == []
    assert "--json" in done.out


@pytest.mark.slow
def test_the_demo_answers_in_json_too(stabexp_command, tmp_path):
    done = stabexp_command("demo", "-q", "--json")
    facts = strict(done.out)
    assert facts["verdict"]["cause"] == "clip_norm"
    assert (tmp_path / facts["report"]).exists()
