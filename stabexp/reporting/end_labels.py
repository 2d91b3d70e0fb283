"""The label at each curve's end, placed so that none covers another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stabexp.reporting.curve import Curve, Frame, text

CHARACTER = 6.4
"""Width of a 12 px character, in px; close enough to keep labels apart."""


def end_of(frame: Frame, points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the step at which a curve ends, or last turned non-finite, and its height in px."""
    if not points:
        return None
    at = len(points) - 1
    while at > 0 and not math.isfinite(points[at][1]) and not math.isfinite(points[at - 1][1]):
        at -= 1
    before = next((value for _, value in reversed(points[:at]) if math.isfinite(value)), math.inf)
    step, value = points[at]
    return step, frame.y(before if math.isnan(value) else value)


def lanes_above(ends: Sequence[tuple[Curve, float]]) -> dict[str, int]:
    """Return a row for each (curve, x) such that no two labels in a row touch."""
    rows: list[float] = []
    lanes: dict[str, int] = {}
    for curve, x in sorted(ends, key=lambda end: end[1]):
        if not curve.label:
            continue
        half = len(curve.label) * CHARACTER / 2 + 3
        row = next((row for row, right in enumerate(rows) if x - half > right), len(rows))
        rows[row : row + 1] = [x + half]
        lanes[curve.key] = row
    return lanes


def end_labels(
    frame: Frame,
    lines: Sequence[tuple[Curve, list[tuple[float, float]]]],
    lanes: Mapping[str, int],
) -> list[str]:
    """Return each curve's label at its end, moved apart where ends lie together."""
    parts = []
    beside: list[tuple[float, float, Curve]] = []
    for curve, points in lines:
        end = end_of(frame, points)
        if end is None or not curve.label:
            continue
        x = frame.x(end[0])
        if curve.key in lanes:
            parts.append(_end_label(curve, x, frame.top - 10 - 13 * lanes[curve.key], "middle"))
        else:
            beside.append((x, end[1], curve))
    beside.sort(key=lambda end: end[0])
    while beside:
        # Ends near enough in x that their labels could touch, each to its neighbour.
        size = 1
        while size < len(beside) and beside[size][0] - beside[size - 1][0] < 3 * CHARACTER:
            size += 1
        group, beside = sorted(beside[:size], key=lambda end: end[1]), beside[size:]
        heights = _apart([y + 4 for _, y, _ in group], lowest=frame.bottom + 6)
        for (x, _, curve), y in zip(group, heights, strict=True):
            parts.append(_end_label(curve, x + 6, y, "start"))
    return parts


def _apart(heights: list[float], *, lowest: float) -> list[float]:
    """Return ascending heights moved as little as needed to lie 11.5 px apart, above `lowest`."""
    spread: list[float] = []
    for height in heights:
        spread.append(max(height, spread[-1] + 11.5) if spread else height)
    limit = lowest
    for at in range(len(spread) - 1, -1, -1):
        spread[at] = min(spread[at], limit)
        limit = spread[at] - 11.5
    return spread


def _end_label(curve: Curve, x: float, y: float, anchor: str) -> str:
    return (
        f'<text class="end {text(curve.kind)}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'data-key="{text(curve.key)}">{text(curve.label)}</text>'
    )
