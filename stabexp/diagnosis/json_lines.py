"""JSON lines: one object for each moment that was logged, nested ones under "outer/inner" names.

A file that is one JSON value is taken too: a list of such objects, or an object of lists, as Keras
and many scripts save their history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stabexp.diagnosis.log import Keep, Log, Rows
from stabexp.diagnosis.text_file import opened
from stabexp.errors import ConfigError

DEEPEST = 4
"""Levels of nested objects that are looked into."""
LONGEST_LINE = 16_000_000
"""Characters of one object."""


def read_json_lines(path: Path, keep: Keep) -> Log:
    """Return the curves of a file with one JSON object a line; lines that are none are skipped.

    Raises:
        ConfigError: If it is no text, or no line is an object.
    """
    rows = Rows(keep)
    objects = 0
    bad: list[tuple[int, str]] = []
    number, ended = 0, True
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE):
            number += 1
            ended = line.endswith("\n")
            if not line.strip():
                continue
            value = parsed(line)
            if isinstance(value, dict):
                objects += 1
                rows.add(number, flat(value))
            else:
                bad.append((number, line[:40].strip()))
    if not objects:
        raise ConfigError(
            f"{path}:{bad[0][0] if bad else 1}: no JSON object in any line; expected "
            '{"step": 0, "loss": 2.3} and so on, one a line'
        )
    series, others, warnings = rows.result()
    if bad and bad[-1][0] == number and not ended:
        warnings.append(f"the last line ends in the middle ({bad.pop()[1]!r}) and was left out")
    if bad:
        warnings.append(
            f"{len(bad)} line(s) are no JSON object and were skipped, the first is line "
            f"{bad[0][0]}: {bad[0][1]!r}"
        )
    return Log(format="JSON lines", series=series, others=others, warnings=warnings)


def log_of_json(value: Any, path: Path, keep: Keep) -> Log:
    """Return the curves of one JSON value: a list of objects, or an object of lists.

    Raises:
        ConfigError: If it is neither.
    """
    rows = Rows(keep, place="entry")
    count = 0
    for count, row in enumerate(_rows(value), start=1):
        rows.add(count, row)
    if not count:
        raise ConfigError(
            f"{path}: is JSON, but neither a list of objects, nor an object of lists, nor has it a "
            "'log_history' as a trainer_state.json"
        )
    series, others, warnings = rows.result()
    return Log(format="JSON", series=series, others=others, warnings=warnings)


def _rows(value: Any) -> Iterator[Mapping[str, object]]:
    if isinstance(value, list):
        yield from (flat(row) for row in value if isinstance(row, dict))
    elif isinstance(value, dict):
        if isinstance(value.get("history"), (dict, list)):
            value = value["history"]
            if isinstance(value, list):
                yield from _rows(value)
                return
        columns = {name: column for name, column in value.items() if isinstance(column, list)}
        for index in range(max(map(len, columns.values()), default=0)):
            yield {name: column[index] for name, column in columns.items() if index < len(column)}


def parsed(text: str) -> Any:
    """Return a JSON value, None where the text is none; NaN and Infinity are read as numbers."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(value: Mapping[str, Any], prefix: str = "", *, depth: int = 0) -> dict[str, object]:
    """Return an object's cells, those of objects in it as "outer/inner"."""
    cells: dict[str, object] = {}
    for key, cell in value.items():
        name = f"{prefix}{key}"
        if isinstance(cell, dict):
            if depth < DEEPEST:
                cells |= flat(cell, f"{name}/", depth=depth + 1)
        elif not isinstance(cell, list):
            cells[name] = cell
    return cells
