"""A number as logs spell it: NaN and infinity in every usual way, tensors that were printed whole.

Python writes nan, JSON writers NaN or Infinity, C on Windows -1.#IND, and whoever logs `loss` where
`loss.item()` was meant writes tensor(0.69, grad_fn=<MeanBackward0>).
"""

from __future__ import annotations

import math
import re

LARGEST_STEP = 2**53
"""Steps beyond this are no steps; up to here a float holds every whole number."""

_SPELLED = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "1.#qnan": math.nan,
    "1.#snan": math.nan,
    "1.#ind": math.nan,
    "1.#inf": math.inf,
}
_PRINTED = re.compile(r"(?:tensor|array|np\.float\d+|float)\(\s*\[?\s*([^\s,\])]+)")
EMPTY = frozenset({"", "none", "null", "na", "n/a", "-"})
"""Cells that say that there is no number."""
LONG = 12
"""Characters, spaces included, of a cell that is not looked at as an empty one."""


def number(value: object) -> float | None:
    """Return the number a cell holds, NaN and ±Inf included; None where it holds none.

    Args:
        value: A number, or its text.
    """
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf if value > 0 else -math.inf


def _of_text(value: str) -> float | None:
    text = value.strip().strip("'\"").lower()
    if printed := _PRINTED.match(text):
        text = printed[1]
    unsigned = text.lstrip("+-")
    if unsigned in _SPELLED and len(text) - len(unsigned) <= 1:
        return -_SPELLED[unsigned] if text.startswith("-") else _SPELLED[unsigned]
    try:
        return None if "_" in text else float(text)  # Python reads 1_0 as 10; no log means that
    except ValueError:
        return None


def is_empty(value: object) -> bool:
    """Return whether a cell says that there is no number."""
    if not isinstance(value, str):
        return value is None
    return len(value) < LONG and value.strip().lower() in EMPTY


def step_number(value: object) -> int | None:
    """Return the step a cell holds, None where it is no whole number of a usual size."""
    found = number(value)
    if found is None or not abs(found) < LARGEST_STEP or found != int(found):
        return None
    return int(found)
