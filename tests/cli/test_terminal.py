"""Colour, width and silence: decided by the options, the environment and the stream."""

from __future__ import annotations

import io

import pytest

from stabexp.cli.terminal import (
    WISHED,
    console_of,
    is_coloured,
    is_live,
    prose_width,
    width_of,
)

pytestmark = pytest.mark.usefixtures("no_uploader_left")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(WISHED, "colour", None)


COLOUR = [
    pytest.param(Terminal, {}, None, True, id="a terminal"),
    pytest.param(io.StringIO, {}, None, False, id="a pipe"),
    pytest.param(Terminal, {"NO_COLOR": "1"}, None, False, id="NO_COLOR"),
    pytest.param(Terminal, {"NO_COLOR": ""}, None, True, id="an empty NO_COLOR says nothing"),
    pytest.param(Terminal, {"TERM": "dumb"}, None, False, id="a dumb terminal"),
    pytest.param(io.StringIO, {"FORCE_COLOR": "1"}, None, True, id="FORCE_COLOR in a pipe"),
    pytest.param(Terminal, {"FORCE_COLOR": "0"}, None, False, id="FORCE_COLOR=0"),
    pytest.param(Terminal, {"TERM": "dumb", "FORCE_COLOR": "1"}, None, True, id="forced"),
    pytest.param(Terminal, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, None, False, id="both"),
    pytest.param(Terminal, {"FORCE_COLOR": "1"}, False, False, id="--no-color beats all"),
    pytest.param(io.StringIO, {"NO_COLOR": "1"}, True, True, id="--color beats all"),
]


@pytest.mark.parametrize(("stream", "environment", "wished", "coloured"), COLOUR)
def test_colour_is_decided_by_option_environment_and_stream(
    monkeypatch, stream, environment, wished, coloured
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(WISHED, "colour", wished)
    shown = stream()
    assert is_coloured(shown) is coloured
    console_of(stream=shown).print("a word", style="bold red")
    assert ("\x1b[" in shown.getvalue()) is coloured


def test_a_forced_colour_in_a_pipe_makes_no_line_live(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = io.StringIO()
    console = console_of(stream=shown)
    with console.status("working"):
        console.print("done", style="bold")
    assert not is_live(shown)
    assert shown.getvalue() == "\x1b[1mdone\x1b[0m\n"


def test_without_colour_a_line_on_a_terminal_is_live_all_the_same(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert is_live(Terminal())
    assert console_of(stream=Terminal()).is_terminal


@pytest.mark.parametrize(
    ("told", "width", "prose"),
    [(None, 80, 80), ("60", 60, 60), ("200", 200, 100), ("7", 40, 40), ("wide", 80, 80)],
)
def test_a_pipe_has_80_columns_unless_the_environment_says_otherwise(
    monkeypatch, told, width, prose
):
    if told is not None:
        monkeypatch.setenv("COLUMNS", told)
    assert (width_of(io.StringIO()), prose_width(io.StringIO())) == (width, prose)


def test_the_verdict_is_coloured_where_asked_and_says_the_same(stabexp_command, here):
    plain = stabexp_command("log", "late", "--no-color")
    for arguments in (("--color", "log", "late"), ("log", "late", "--color")):
        coloured = stabexp_command(*arguments)
        assert "\x1b[32mcured" in coloured.out
        assert "\x1b[1mHow it was decided" in coloured.out
        assert _stripped(coloured.out) == plain.out


def test_errors_are_red_where_asked(stabexp_command):
    assert stabexp_command("log", "nobody", "--color").errors.startswith("\x1b[1;31merror:\x1b[0m ")
    assert "\x1b" not in stabexp_command("log", "nobody").errors
    assert "\x1b" not in stabexp_command("log", "--no-such-option").errors


def test_after_two_dashes_an_argument_is_no_option(stabexp_command):
    done = stabexp_command("log", "--", "--color")
    assert "--color" in done.errors
    assert "\x1b" not in done.errors


QUIET = ("bisect", "run", "check", "replay", "compare", "recover", "lr-find", "locate", "demo")


@pytest.mark.parametrize("name", QUIET)
def test_what_shows_progress_can_be_quiet(stabexp_command, name):
    assert "--quiet" in stabexp_command(name, "--help").out


def test_quiet_leaves_warnings_and_nothing_else(stabexp_command, here):
    loud = stabexp_command("bisect", "late", "--variables", "precision", "--workers", "0")
    assert "replays start at step" in loud.errors
    command = ("bisect", "late", "--variables", "precision", "--workers", "0", "--again", "-q")
    quiet = stabexp_command(*command)
    assert quiet.code == loud.code
    told = quiet.errors.split("warning: ")
    assert told[0] == ""
    assert "has not received everything" in quiet.errors


def _stripped(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
