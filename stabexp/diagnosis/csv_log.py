"""A CSV log: a header with the curves' names, then rows that may be sparse (Lightning's are).

Lightning writes what is logged at one moment as one row and leaves the other cells empty: the loss,
the rate and the validation each have rows of their own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from stabexp.diagnosis.log import Keep, Log, Rows
from stabexp.diagnosis.names import EPOCH, STEP, pick
from stabexp.diagnosis.numbers import is_empty, number
from stabexp.diagnosis.text_file import opened
from stabexp.errors import ConfigError

LONGEST_LINE = 1_000_000
"""Characters; what is longer is no row of a log."""


def read_csv(path: Path, keep: Keep) -> Log:
    """Return the curves of a CSV file, separated by commas, semicolons or tabs.

    Raises:
        ConfigError: If it is no text, has no header, or no row below it.
    """
    with opened(path) as file:
        lines = _lines(file, path)
        first = next(lines, "")
        try:
            return _log(path, keep, first, lines)
        except csv.Error as error:
            raise ConfigError(f"{path}: is no CSV log: {error}") from error


def _log(path: Path, keep: Keep, first: str, lines: Iterator[str]) -> Log:
    separator = max(",;\t", key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    if not header or any(number(name) is not None for name in header):
        raise ConfigError(
            f"{path}:1: no header: expected the curves' names (step,loss,…), found {first[:60]!r}"
        )
    last = _LastLine(lines)
    reader = csv.reader(last, delimiter=separator)
    rows = Rows(keep)
    count = 0
    cut = ""
    for row in reader:
        if _is_header(row):  # a resumed run may write it again, with further columns
            header = [name.strip() for name in row]
            continue
        if len(row) < len(header) and not last.line.endswith("\n"):
            cut = f"the last line ends in the middle ({last.line[:40].strip()!r}) and was left out"
            break
        count += 1
        rows.add(reader.line_num + 1, dict(zip(header, row, strict=False)))
    if not count:
        raise ConfigError(f"{path}: has a header and no rows; was it written to at all?")
    series, others, warnings = rows.result()
    return Log(
        format="CSV",
        series=series,
        others=others,
        warnings=[*warnings, *([cut] if cut else [])],
    )


def _is_header(row: Sequence[str]) -> bool:
    if any(number(cell) is not None for cell in row):
        return False
    return pick([cell for cell in row if not is_empty(cell)], (*STEP, *EPOCH)) is not None


class _LastLine:
    """Lines, and the one handed out last: only that one tells whether the file was cut."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.line = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.line = next(self._lines)
        return self.line


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE:
            raise ConfigError(f"{path}: has a line of a million characters; it is no CSV log")
        yield line
