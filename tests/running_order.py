"""In which order the tests run, so that several processes have done at about the same time.

pytest-xdist hands out consecutive tests, large portions first. So files with slow tests are spread
over the first part of the whole, and what comes last is quick. A file stays in one piece: its
servers and browsers are started once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

EARLY = 0.6
"""The part of the quick tests among which the files with slow ones are spread."""


def spread(items: Sequence[Any]) -> list[Any]:
    """Return the same tests, files with slow tests spread over the first part."""
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    slow = [file for file in files if _is_slow(file)]
    quick = [file for file in files if not _is_slow(file)]
    every = EARLY * sum(map(len, quick)) / max(len(slow), 1)
    ordered: list[Any] = []
    passed = 0
    rest = iter(quick)
    for number, file in enumerate(slow):
        while passed < number * every and (before := next(rest, None)) is not None:
            ordered += before
            passed += len(before)
        ordered += file
    return ordered + [item for file in rest for item in file]


def _is_slow(file: Sequence[Any]) -> bool:
    return any(item.get_closest_marker("slow") for item in file)
