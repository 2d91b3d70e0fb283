"""A line chart as SVG text: curves over steps that stay readable when a loss explodes.

A diverging loss spans any number of decades and ends in NaN. So the axis turns logarithmic when the
values span more than two decades and looks no further than 30 times the median, so that the
healthy curves stay tall: a curve that leaves is held at the edge and marked with a triangle.
The first non-finite value of each stretch is marked with a cross. Colours and dashes come from the
page's style sheet, by the curve's `kind`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stabexp.reporting.curve import Curve, Frame, draw_curve, text
from stabexp.reporting.end_labels import CHARACTER, end_labels, end_of, lanes_above
from stabexp.reporting.scale import step_ticks, value_scale
from stabexp.reporting.words import figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A vertical line at a step, with its name on top."""

    step: float
    label: str
    kind: str


def line_chart(
    curves: Sequence[Curve],
    *,
    name: str,
    title: str,
    description: str,
    y_label: str,
    markers: Sequence[Marker] = (),
    steps: tuple[float, float] | None = None,
    width: int = 960,
    height: int = 380,
    most_points: int = 600,
) -> str:
    """Return one `<svg>` element with its title and description.

    Args:
        curves: Drawn in order, so the last lies on top.
        name: Unique on the page; the ids inside the picture begin with it.
        y_label: Name of the value, with its unit if it has one.
        steps: First and last step shown; by default, what the curves and markers span.
        width, height: In px; the picture scales down from there.
        most_points: Corners per curve, at most; highs and lows are kept.
    """
    lines = [(curve, _inside(curve.points, steps)) for curve in curves]
    first, last = steps or _span(
        [step for _, points in lines for step, _ in points] + [mark.step for mark in markers]
    )
    if not first < last:
        first, last = first - 1, first + 1
    scale = value_scale([value for _, points in lines for _, value in points])
    rows = sorted(markers, key=lambda mark: mark.step)
    top = 12.0 + 17 * len(rows)
    frame = Frame(58.0, top, width - 40.0, height - 40.0, first, last, scale)
    # Curves that end at the upper edge have their labels above it, in as many rows as they need.
    blown = [
        (curve, frame.x(end[0]))
        for curve, points in lines
        if (end := end_of(frame, points)) and end[1] <= top + 0.01
    ]
    lanes = lanes_above(blown)
    frame = replace(frame, top=top + 13 * (1 + max(lanes.values())) if lanes else top)

    parts = [
        f'<svg class="chart" role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{text(title)}</title>',
        f'<desc id="{name}-desc">{text(description)}</desc>',
        *_axes(frame, y_label),
        *_markers(frame, rows),
    ]
    for curve, points in lines:
        parts += draw_curve(frame, curve, points, most_points)
    parts += end_labels(frame, lines, lanes)
    if not any(points for _, points in lines):
        x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">no steps recorded</text>')
    return "".join([*parts, "</svg>"])


def _inside(
    points: Sequence[tuple[float, float]], steps: tuple[float, float] | None
) -> list[tuple[float, float]]:
    first, last = steps or (-math.inf, math.inf)
    return sorted(
        ((step, value) for step, value in points if math.isfinite(step) and first <= step <= last),
        key=lambda point: point[0],
    )


def _span(steps: Sequence[float]) -> tuple[float, float]:
    return (min(steps), max(steps)) if steps else (0, 1)


def _axes(frame: Frame, y_label: str) -> list[str]:
    parts = ['<g class="axis">']
    for value, label in frame.scale.ticks(int((frame.bottom - frame.top) / 34)):
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{frame.left}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{frame.left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for step in step_ticks(frame.first, frame.last, int((frame.right - frame.left) / 80)):
        x = frame.x(step)
        parts.append(
            f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.bottom}" '
            f'y2="{frame.bottom + 5}"/>'
            f'<text x="{x:.1f}" y="{frame.bottom + 19}" text-anchor="middle">{figure(step)}</text>'
        )
    middle = (frame.top + frame.bottom) / 2
    kind = "" if frame.scale.kind == "linear" else f", {frame.scale.kind} scale"
    parts.append(
        f'<line class="base" x1="{frame.left}" x2="{frame.right}" y1="{frame.bottom}" '
        f'y2="{frame.bottom}"/>'
        f'<text class="name" x="{(frame.left + frame.right) / 2:.1f}" y="{frame.bottom + 36}" '
        f'text-anchor="middle">step</text>'
        f'<text class="name" transform="translate(13 {middle:.1f}) rotate(-90)" '
        f'text-anchor="middle">{text(y_label)}{kind}</text></g>'
    )
    return parts


def _markers(frame: Frame, rows: Sequence[Marker]) -> list[str]:
    # One row of text per marker: they can lie on neighbouring steps and never cover each other.
    parts = []
    for row, mark in enumerate(rows):
        if not frame.first <= mark.step <= frame.last:
            continue
        x, y = frame.x(mark.step), 14.0 + 17 * row
        label = f"{mark.label} {figure(mark.step)}"
        fits = x + 6 + len(label) * CHARACTER < frame.right + 36
        anchor, at = ("start", x + 5) if fits else ("end", x - 5)
        parts.append(
            f'<g class="marker {text(mark.kind)}"><line x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{y - 9:.1f}" y2="{frame.bottom}"/>'
            f'<text x="{at:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(label)}</text></g>'
        )
    return parts
