"""The samples of a step as a short text: "0-31,64-95", or packed integers when shuffled."""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Sequence

_TYPES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Bytes per id → array type code."""


def encode_ids(ids: Sequence[int]) -> str | list[int]:
    """Return ids as runs "a-b,c", else "u2:" and base64, little-endian; exact.

    Ids outside 0 … 2⁶⁴ - 1 are kept as a plain list.
    """
    runs = _runs(ids)
    if runs is not None:
        return runs
    largest = max(ids)
    if min(ids) < 0 or largest >= 1 << 64:
        return [int(i) for i in ids]
    size = next(size for size in _TYPES if largest < 1 << (8 * size))
    packed = array(_TYPES[size], ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return f"u{size}:{binascii.b2a_base64(packed, newline=False).decode()}"


def decode_ids(text: str | list[int]) -> tuple[int, ...]:
    """Return what `encode_ids` was given.

    Raises:
        ValueError: If it did not write this text.
    """
    if isinstance(text, list):
        return tuple(text)
    if text.startswith("u"):
        kind, _, packed = text.partition(":")
        size = int(kind[1:])
        if size not in _TYPES:
            raise ValueError(f"unknown sample id type {kind!r}")
        values = array(_TYPES[size])
        values.frombytes(base64.b64decode(packed, validate=True))
        if sys.byteorder == "big":
            values.byteswap()
        return tuple(values)
    ids: list[int] = []
    for run in text.split(",") if text else ():
        first, _, last = run.partition("-")
        ids.extend(range(int(first), int(last or first) + 1))
    return tuple(ids)


def _runs(ids: Sequence[int]) -> str | None:
    """Return the runs of consecutive ids, or None when they are too short to save space."""
    if not ids:
        return ""
    most = len(ids) // 4 + 1
    runs: list[str] = []
    first = last = ids[0]
    if first < 0:
        return None
    for i in ids[1:]:
        if i == last + 1:
            last = i
            continue
        if len(runs) + 1 >= most or i < 0:
            return None
        runs.append(f"{first}-{last}" if last > first else f"{first}")
        first = last = i
    runs.append(f"{first}-{last}" if last > first else f"{first}")
    return ",".join(runs)
