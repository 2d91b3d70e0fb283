"""The command line: arguments → one API call → printed result → exit code.

Exit codes: 0 done · 1 error · 2 usage · 3 the run diverged · 4 no verdict (inconclusive or
marginal) · 5 not reproduced · 6 something was found before training · 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any

import typer

from stabexp.cli import (
    advising,
    bisecting,
    boards,
    diagnosing,
    examining,
    listing,
    looking,
    recovering,
    reporting,
    running,
    samples,
    warning,
)
from stabexp.cli.app import INTERRUPTED, Interrupted, app, say
from stabexp.cli.json_output import error_document, only_json, print_json, was_printed
from stabexp.cli.terminal import WISHED
from stabexp.errors import StabexpError

__all__ = [
    "advising",
    "app",
    "bisecting",
    "boards",
    "diagnosing",
    "examining",
    "listing",
    "looking",
    "main",
    "recovering",
    "reporting",
    "running",
    "samples",
    "telling",
    "warning",
]

_UsageError: Any = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")
_COLOURS = {"--color": True, "--no-color": False}


def main() -> None:
    """Run the command line; every error of ours becomes one message and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old locale must not end a run with "→"
    arguments = _without_colour(sys.argv[1:])
    asked = set(arguments[: _end_of_options(arguments)])
    as_json = "--json" in asked and not asked & {"-h", "--help"}
    try:
        with only_json() if as_json else nullcontext():
            code = _run(arguments, as_json=as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(OSError):  # whoever read it has gone; nothing more is to be said
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    sys.exit(code)


def _without_colour(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without `--color` and `--no-color`, which may stand anywhere."""
    WISHED.colour = None
    end = _end_of_options(arguments)
    for argument in arguments[:end]:
        WISHED.colour = _COLOURS.get(argument, WISHED.colour)
    return [each for at, each in enumerate(arguments) if at >= end or each not in _COLOURS]


def _end_of_options(arguments: Sequence[str]) -> int:
    return list(arguments).index("--") if "--" in arguments else len(arguments)


def _run(arguments: list[str], *, as_json: bool) -> int:
    """Return the exit code of a command; what goes wrong is told on stderr, and in JSON."""

    def failed(error: BaseException, message: str, code: int, *, told: str | None = None) -> int:
        say(message if told is None else told)
        if as_json and not was_printed():
            print_json(error_document(error, message.removeprefix("error: "), code))
        return code

    try:
        code = app(arguments, standalone_mode=False)
    except StabexpError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return failed(error, f"error: {error}{notes}", error.exit_code)
    except _UsageError as error:
        return failed(error, error.format_message(), error.exit_code, told=_usage(error))
    except (Interrupted, KeyboardInterrupt, typer.Abort) as error:
        return failed(Interrupted(), str(error) or "interrupted", INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        message = f"{place}{error.strerror or error}; check that place, its space and permissions"
        return failed(error, f"error: {message}", 1)
    except Exception as error:
        if as_json and not was_printed():
            print_json(error_document(error, str(error) or "an unexpected error", 1))
        raise
    if code == INTERRUPTED:
        return failed(Interrupted(), "interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _usage(error: Any) -> str:
    """Return how a command is used, and what was wrong with how it was."""
    context = getattr(error, "ctx", None)
    message: str = error.format_message()
    if context is None:
        return f"error: {message}"
    if type(error).__name__ == "NoArgsIsHelpError":
        return message
    how = f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n"
    return f"error: {message}\n{how}".rstrip()
