"""The parts of a page that are made, between two comments; the prose around them stays.

<!-- made: verdict -->
…
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"(<!-- made: (?P<name>[\w. ]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.DOTALL)


def names(page: str) -> list[str]:
    """Return the names of a page's made parts, in order."""
    return [found["name"] for found in _PART.finditer(page)]


def filled(page: str, parts: Mapping[str, str], *, partly: bool = False) -> str:
    """Return a page with its made parts made anew.

    Args:
        page: The page as it is.
        parts: Name → text.
        partly: Whether parts that are not given may stay as they are.

    Raises:
        ValueError: If the page lacks a part, or has one that nobody makes.
    """
    there = set(names(page))
    if missing := sorted(set(parts) - there if partly else set(parts) ^ there):
        raise ValueError(f"made parts: {', '.join(missing)}: on the page or made, but not both")

    def put(found: re.Match[str]) -> str:
        text = parts.get(found["name"], found["text"]).strip("\n")
        return f"{found[1]}{text}\n{found[4]}" if text else f"{found[1]}{found[4]}"

    return _PART.sub(put, page)
