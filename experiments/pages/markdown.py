"""What a page tells its reader to write and to type, in order.

A fenced block of `python` or `yaml` whose first line is a comment with a file's name is that file,
whole. A block of `sh` holds commands, one a line; a backslash at its end joins the next line. A
comment behind a command can say which exit code it has ("exit code 3") and that it stays until it
is told to stop ("Ctrl-C"). A block of `console` is what a terminal showed. A block below
`<!-- snippets: no, because … -->` is only shown. Anything else is prose.

Nothing but the standard library is needed to read or follow a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)\s*$")
_SHOWN = re.compile(r"^<!-- snippets: no\b.*-->$")
_NAME = re.compile(r"^#\s+(?P<name>[\w./-]+\.\w+)$")
_COMMENT = re.compile(r"(?:^|\s+)#\s+(?P<said>.*)$")
_CODE = re.compile(r"\bexit code (\d+)\b")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    line: int
    """Of its first line of text, from 1."""
    text: str

    @property
    def file(self) -> str:
        """The name of the file that it is, empty when it is none."""
        first = self.text.partition("\n")[0]
        found = _NAME.match(first) if self.language in {"python", "yaml"} else None
        return found["name"] if found else ""


@dataclass(frozen=True)
class Command:
    """One thing to type."""

    line: int
    text: str
    """Without the comment."""
    code: int = 0
    """The exit code that the page says it has."""
    stays: bool = False
    """Whether it goes on until Ctrl-C."""


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page.

    Raises:
        ValueError: If the last one has no end.
    """
    fence, language, begun, inside, shown = "", "", 0, list[str](), False
    for number, line in enumerate(page.splitlines(), 1):
        if fence:
            if line.rstrip() == fence:
                if not shown:
                    yield Block(language, begun, "".join(f"{text}\n" for text in inside))
                fence, shown = "", False
            else:
                inside.append(line)
        elif found := _FENCE.match(line):
            fence, language = found["fence"], found["language"]
            begun, inside = number + 1, []
        elif line.strip():
            shown = _SHOWN.match(line) is not None
    if fence:
        raise ValueError(f"{begun - 1}: this block has no end")


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block of `sh`."""
    joined, begun = "", 0
    for number, line in enumerate(block.text.splitlines(), block.line):
        begun = begun if joined else number
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        found = _COMMENT.search(joined)
        said = found["said"] if found else ""
        text = joined[: found.start()].strip() if found else joined.strip()
        joined = ""
        if text:
            code = _CODE.search(said)
            yield Command(begun, text, int(code[1]) if code else 0, "Ctrl-C" in said)


def part(page: str, first: str, last: str) -> str:
    """Return a page with only what lies between two texts; lines keep their numbers.

    Args:
        first: In the line it begins with; empty for the top.
        last: In the line it ends before; empty for the end.

    Raises:
        ValueError: If one of them is not there.
    """
    lines = page.splitlines()
    begin, end = 0, len(lines)
    if first:
        begin = next((at for at, line in enumerate(lines) if first in line), -1)
        if begin < 0:
            raise ValueError(f"no line holds {first!r}")
    if last:
        end = next((at for at, line in enumerate(lines) if at > begin and last in line), -1)
        if end < 0:
            raise ValueError(f"no line after {begin + 1} holds {last!r}")
    return "\n" * begin + "".join(f"{line}\n" for line in lines[begin:end])
