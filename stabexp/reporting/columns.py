"""Text in columns of a terminal: how wide it is, and how it is wrapped, padded and cut.

Chinese, Japanese and Korean characters, and most emoji, take two columns; combining ones take none.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator

USUAL = 80
"""Columns of a log file, and of a terminal that does not tell."""

_COMMAND = re.compile(r"\b(?:stabexp|python -m|pip install|mlflow) \S.*$")
_FRONT = re.compile(
    r"\s*(?:[-*!•→·]\s+|\d+\.?\s{1,3}|[a-z][a-z ]{0,18}?:?\s{2,}|(?:next|why|remedy|note|warning"
    r"|checked|changed|not looked at|likely): )?"
)
_DEEPEST = 16
"""Columns that further lines of a paragraph are indented at most."""


def columns(text: str) -> int:
    """Return how many columns a text of one line takes."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def pad(text: str, size: int) -> str:
    """Return a text with spaces behind it, `size` columns wide or as wide as it is."""
    return text + " " * (size - columns(text))


def cut(text: str, size: int) -> str:
    """Return a text that takes at most `size` columns, with … where it was cut."""
    if columns(text) <= size:
        return text
    while text and columns(text) > size - 1:
        text = text[:-1]
    return text + "…"


def wrap(text: str, width: int, *, first: str = "", then: str = "") -> list[str]:
    """Return a paragraph as lines of at most `width` columns.

    A word that is wider alone, such as a path, keeps a line of its own; only scripts that set no
    spaces are broken inside a word.

    Args:
        text: The paragraph; its white space does not matter.
        width: Columns of a line.
        first: What stands in front of the first line.
        then: What stands in front of every further line.
    """
    if columns(text) == len(text):
        lines = textwrap.wrap(
            text,
            max(width, len(first) + 1, len(then) + 1),
            initial_indent=first,
            subsequent_indent=then,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return lines or [first.rstrip()]
    lines, line = [], first
    for word in text.split():
        rest = word
        gap = "" if line in {first, then} else " "
        if columns(line + gap + rest) > width and line not in {first, then}:
            lines.append(line)
            line, gap = then, ""
        while columns(line + gap + rest) > width and columns(rest) != len(rest):
            fits = 1  # one "word" of Chinese can fill many lines
            while fits < len(rest) and columns(line + gap + rest[: fits + 1]) <= width:
                fits += 1
            lines.append(line + gap + rest[:fits])
            rest, line, gap = rest[fits:], then, ""
            if not rest:
                break
        line += gap + rest
    return [*lines, line] if line.strip() or not lines else lines


def fit(text: str, width: int, *, written_for: int = USUAL) -> str:
    """Return a text with its too long lines wrapped, each behind its own indentation.

    A command stays whole, on a line of its own, so that it can be copied; so does a single word,
    such as a path. Lines that fit are left as they are. For fewer columns than the text was
    written for, its paragraphs are joined first, so that they do not end in ragged lines.
    """
    lines = text.split("\n")
    if width < written_for:
        lines = list(_joined(lines, written_for))
    return "\n".join(line for long in lines for line in _fitted(long, width))


def _fitted(line: str, width: int) -> Iterator[str]:
    if columns(line) <= width:
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    command = _COMMAND.search(line)
    if command is not None and command.start() <= len(indent):
        yield line
        return
    if command is not None and len(command[0].split()) > 2:
        yield from _fitted(line[: command.start()].rstrip(), width)
        yield f"{indent}  {command[0]}"
        return
    front = _FRONT.match(line)
    hang = min(columns(front[0]) if front else 0, _DEEPEST)
    hang = hang if hang > len(indent) else len(indent) + 2
    yield from wrap(line[len(indent) :], width, first=indent, then=" " * hang)


def _joined(lines: list[str], width: int) -> Iterator[str]:
    """Yield paragraphs of text that was wrapped to `width`, each as one line."""
    paragraph: list[str] = []
    for line in lines:
        if paragraph and _goes_on(paragraph[-1], line, width):
            paragraph.append(line)
            continue
        if paragraph:
            yield _one(paragraph)
        paragraph = [line]
    if paragraph:
        yield _one(paragraph)


def _goes_on(before: str, line: str, width: int) -> bool:
    """Whether the line was begun only because its first word had no room on the one before."""
    words = line.split(maxsplit=1)
    if not words or not before.strip() or _COMMAND.match(line.lstrip()):
        return False
    deeper = len(line) - len(line.lstrip()) >= len(before) - len(before.lstrip())
    return deeper and columns(before) + 1 + columns(words[0]) > width and "  " not in line.strip()


def _one(paragraph: list[str]) -> str:
    return " ".join([paragraph[0].rstrip(), *(line.strip() for line in paragraph[1:])])
