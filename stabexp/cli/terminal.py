"""Where text goes and what it looks like there: its width, its colour, whether a line is live.

Answers go to stdout, everything else to stderr. Whether a stream is coloured is decided by the
first of these that says something: `--color` and `--no-color`, NO_COLOR, FORCE_COLOR, TERM=dumb,
and whether it is a terminal. A line is live on a terminal only, whatever the colours are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WIDEST = 100
"""Columns of prose at most: longer lines are hard to read."""
NARROWEST = 40
_DUMB = frozenset({"dumb", "unknown"})


@dataclass
class Wished:
    """What the command line says for the whole command."""

    colour: bool | None = None
    """True for `--color`, False for `--no-color`."""


WISHED = Wished()


def is_coloured(stream: TextIO) -> bool:
    """Return whether text to a stream is coloured."""
    if WISHED.colour is not None:
        return WISHED.colour
    if os.environ.get("NO_COLOR"):
        return False
    if (forced := os.environ.get("FORCE_COLOR", "")) != "":
        return forced not in {"0", "false"}
    return is_live(stream)


def is_live(stream: TextIO) -> bool:
    """Return whether a line of a stream can be written over: on a terminal that is not dumb."""
    return _is_terminal(stream) and os.environ.get("TERM", "").lower() not in _DUMB


def width_of(stream: TextIO) -> int:
    """Return the columns of a stream: COLUMNS, else those of the terminal, else 80."""
    with suppress(ValueError):
        if (told := int(os.environ.get("COLUMNS", ""))) > 0:
            return max(NARROWEST, told)
    from stabexp.reporting.columns import USUAL

    if _is_terminal(stream):
        with suppress(OSError, ValueError):
            return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns or USUAL)
    return USUAL


def prose_width(stream: TextIO) -> int:
    """Return how wide prose is on a stream: as the stream, and not wider than can be read."""
    return min(WIDEST, width_of(stream))


def console_of(*, quiet: bool = False, stream: TextIO | None = None) -> Console:
    """Return what progress is written with: silent when quiet, plain where colour is not wanted."""
    from rich.console import Console

    stream = sys.stderr if stream is None else stream
    coloured = is_coloured(stream)
    return Console(
        file=stream,
        quiet=quiet,
        highlight=False,
        soft_wrap=False,
        markup=False,
        emoji=False,
        width=width_of(stream),
        force_terminal=is_live(stream),
        force_interactive=is_live(stream),
        color_system="auto" if coloured and is_live(stream) else "standard" if coloured else None,
        no_color=not coloured,
        legacy_windows=False,
    )


def show(text: str) -> None:
    """Print an answer, wrapped to the width of stdout."""
    from stabexp.reporting.columns import fit

    print(fit(text, width_of(sys.stdout)))


def show_rich(text: Text) -> None:
    """Print an answer whose lines are made already, coloured where colour is wanted."""
    if not is_coloured(sys.stdout):
        print(text.plain)
        return
    console_of(stream=sys.stdout).print(text, soft_wrap=True)


def say(text: str) -> None:
    """Print a message to stderr, wrapped to its width."""
    from stabexp.reporting.columns import fit

    lines = fit(text, width_of(sys.stderr))
    word, colon, rest = lines.partition(":")
    style = {"error": "1;31", "warning": "1;33"}.get(word)
    if style and colon and is_coloured(sys.stderr):
        lines = f"\x1b[{style}m{word}{colon}\x1b[0m{rest}"
    print(lines, file=sys.stderr)


@contextmanager
def busy(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a live line while something runs; nothing where no line can be live."""
    if quiet or not is_live(sys.stderr):
        yield
        return
    with console_of().status(text):
        yield


def _is_terminal(stream: TextIO) -> bool:
    with suppress(ValueError, AttributeError):
        return stream.isatty()
    return False
