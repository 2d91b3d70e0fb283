"""One curve as SVG: thinned, broken where it is not finite, marked where it leaves the chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from stabexp.reporting.scale import Scale
from stabexp.reporting.words import clean

_ENOUGH = 6000
"""Points of which every picture can be drawn: several for each of its corners."""
_MOST_MARKS = 12
"""Crosses or triangles drawn per curve, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line: (step, value) points in any order; values may be NaN or ±Inf."""

    key: str
    """Ties the line to its legend entry."""
    label: str
    """Two or three characters written at its end."""
    title: str
    """What hovering shows."""
    kind: str
    """Style class: "run", "control", "placebo" or an outcome."""
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where steps and values lie in the picture, in px."""

    left: float
    top: float
    right: float
    bottom: float
    first: float
    last: float
    scale: Scale

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.scale.share(value) * (self.bottom - self.top)


def text(words: str) -> str:
    """Return text that is safe in SVG, as content and as an attribute."""
    return escape(clean(words))


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most `most` of the finite points, in order, with the ends, highs and lows."""
    if len(points) <= most:
        return list(points)
    values = [value for _, value in points]
    buckets = max(1, (most - 2) // 2)
    kept = {0, len(points) - 1}
    for index in range(buckets):
        begin = index * len(points) // buckets
        inside = values[begin : (index + 1) * len(points) // buckets]
        kept.add(begin + inside.index(min(inside)))
        kept.add(begin + inside.index(max(inside)))
    return [points[at] for at in sorted(kept)]


def condense(
    points: Sequence[tuple[float, float]], most: int = _ENOUGH
) -> Sequence[tuple[float, float]]:
    """Return a curve of a very long run as one that can be drawn: highs, lows and breaks are kept.

    Args:
        points: (step, value) by step; values may be NaN or ±Inf.
        most: Finite points kept, and first points of stretches that are not finite, at most.
    """
    if len(points) <= most:
        return points
    shown = thin([point for point in points if math.isfinite(point[1])], most)
    bad = [not math.isfinite(value) for _, value in points]
    broken = [points[at] for at, is_bad in enumerate(bad) if is_bad and not (at and bad[at - 1])]
    return sorted([*shown, *broken[:most]], key=lambda point: point[0])


def draw_curve(
    frame: Frame, curve: Curve, points: list[tuple[float, float]], most: int
) -> list[str]:
    """Return the SVG elements of one curve, of at most `most` corners; `points` are in order."""
    if not points:
        return []
    shown = thin([point for point in points if math.isfinite(point[1])], most)
    bad = [not math.isfinite(value) for _, value in points]
    breaks = dict(zip((step for step, _ in points), accumulate(bad), strict=True))
    path, previous, edge = [], None, []
    for step, value in shown:
        joined = previous is not None and breaks[step] == previous
        # "h0" makes a lone point visible: a round line cap of no length.
        path.append(f"{'L' if joined else 'M'}{frame.x(step):.1f} {frame.y(value):.1f}")
        if not joined:
            path.append("h0")
        previous = breaks[step]
        edge.append(frame.scale.outside(value))
    crosses = _crosses(frame, points)
    shape = "".join(path)
    parts = [
        f'<g class="curve {text(curve.kind)}" data-key="{text(curve.key)}">'
        f"<title>{text(curve.title)}</title>"
    ]
    if shape:
        parts.append(f'<path class="touch" d="{shape}"/><path class="line" d="{shape}"/>')
    parts += [_cross(x, y) for x, y in crosses]
    parts += _leaving(frame, shown, edge)
    parts.append("</g>")
    return parts


def _crosses(frame: Frame, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return where each stretch of non-finite values begins."""
    found, last, was_bad = [], math.inf, False
    for step, value in points:
        is_bad = not math.isfinite(value)
        if not is_bad:
            last = value
        elif not was_bad:
            found.append((frame.x(step), frame.y(last if math.isnan(value) else value)))
        was_bad = is_bad
    if len(found) > _MOST_MARKS:
        found = [*found[: _MOST_MARKS - 1], found[-1]]
    return found


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 4.5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9"/>'


def _leaving(frame: Frame, points: list[tuple[float, float]], edge: list[int]) -> list[str]:
    """Return a triangle where a curve leaves the values shown."""
    parts: list[str] = []
    before = 0
    for (step, _), side in zip(points, edge, strict=True):
        if side and side != before and len(parts) < _MOST_MARKS:
            x = frame.x(step)
            tip, foot = (frame.top - 6, 7) if side > 0 else (frame.bottom + 6, -7)
            parts.append(f'<path class="off" d="M{x:.1f} {tip:.1f}l5 {foot}h-10z"/>')
        before = side
    return parts
