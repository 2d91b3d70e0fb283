"""Fills the terminal output of a page with what its commands really print.

The page is its own template: the prose stays, every block of `console` that follows one of `sh` is
made anew. Standard output is kept whole; of standard error, which is progress, only the warnings. A
path that begins with the folder in which it was made is shown from that folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.pages.following import Done, Follower
from experiments.pages.markdown import blocks, commands


def filled(
    page: str, follower: Follower, *, leave_out: Sequence[str] = ()
) -> tuple[str, list[Done]]:
    """Return a page with its output made anew, and what its commands did.

    Args:
        page: The page as it is.
        follower: Does what it says.
        leave_out: Beginnings of commands that are not typed.

    Raises:
        WentWrong: Where a command did not do what the page says.
    """
    lines = page.splitlines()
    parts: list[str] = []
    copied = 0
    typed: list[Done] = []
    shown: list[Done] = []
    for block in blocks(page):
        begin = block.line - 1
        if block.file:
            follower.write(block)
        elif block.language == "sh":
            shown = [
                follower.type(command)
                for command in commands(block)
                if not command.text.startswith(tuple(leave_out))
            ]
            typed += shown
        elif block.language == "console" and shown:
            parts += [*lines[copied:begin], transcript(shown, follower.here)]
            copied = begin + len(block.text.splitlines())
    return "\n".join([*parts, *lines[copied:]]) + "\n", typed


def transcript(shown: Sequence[Done], folder: Path) -> str:
    """Return what a terminal showed of some commands; one alone is not repeated."""
    parts = []
    for done in shown:
        if len(shown) > 1:
            parts.append(f"$ {done.command.text}")
        parts += _warnings(done.errors.splitlines())
        parts += done.out.rstrip().splitlines()
    text = "\n".join(line.rstrip() for line in parts)
    return text.replace(f"{folder}/", "").replace(str(folder), ".")


def _warnings(lines: Sequence[str]) -> list[str]:
    """Return the warnings among lines, with those that go on below their first word."""
    kept: list[str] = []
    begun = False
    for line in lines:
        begun = line.startswith("warning: ") or (begun and line.startswith(" " * len("warning: ")))
        if begun:
            kept.append(line)
    return kept
