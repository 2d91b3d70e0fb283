"""The gradient of every layer over depth, on a log scale: where it fades, where it blows up.

One line for each layer, from the input down to the output: the range it had while the run was well,
the middle of it, and where it went.
Source row A7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stabexp.reporting.curve import text
from stabexp.reporting.scale import Scale
from stabexp.reporting.svg_document import CHARACTER, Picture, shortened
from stabexp.reporting.words import figure

WIDTH = 1000
ROWS = 150
"""Layers drawn, at most; of more, the one of each few neighbours that changed most."""
REACH = 1e12
"""How far the axis reaches below its top, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """One layer's line."""

    layer: str
    low: float
    high: float
    """Range while the run was well; NaN when nothing was measured then."""
    points: Mapping[str, float]
    """Style class ("before", "onset", "end") → value."""
    beside: str = ""
    """Further figures, shown at the right."""


def depth_chart(
    lines: Sequence[Depth],
    *,
    title: str,
    subtitle: str,
    names: Mapping[str, str],
    beside: str = "",
    width: int = WIDTH,
) -> Picture:
    """Return the picture.

    Args:
        lines: From the input to the output.
        title, subtitle: Above the picture.
        names: Style class → what its points are.
        beside: Heading of the further figures.
        width: In px; a narrow picture has narrower names, and its legend in a column.
    """
    size = math.ceil(len(lines) / ROWS)
    shown = [max(lines[at : at + size], key=_changed) for at in range(0, len(lines), size)]
    scale = _scale(shown)
    left = 26 + min(0.3 * width, CHARACTER * max(len(line.layer) for line in shown))
    narrow = width < 700
    aside = max([len(beside), *(len(line.beside) for line in shown)])
    right = width - (16 if narrow and not aside else 40) - CHARACTER * aside
    top = 102.0 + (19 * (len(names) + 1) if narrow else 0)
    tall = max(11.0, min(24.0, 620 / len(shown)))
    bottom = top + tall * len(shown)

    def x(value: float) -> float:
        return left + scale.share(value) * (right - left)

    parts = _axis(scale, x, top=top, bottom=bottom, ticks=4 if narrow else 10)
    every = max(1, math.ceil(13 / tall))
    for index, line in enumerate(shown):
        y = top + (index + 0.5) * tall
        if index % every == 0:
            parts.append(
                f'<text class="label" x="{left - 10:.1f}" y="{y + 4:.1f}" text-anchor="end">'
                f"{text(shortened(line.layer, left - 20))}</text>"
            )
        parts += _line(line, x, y, right)
    parts += _legend(16.0 if narrow else left, names, column=narrow)
    if beside:
        parts.append(f'<text x="{right + 24:.1f}" y="{top - 8:.1f}">{text(beside)}</text>')
    return Picture(
        parts=parts,
        title=title,
        subtitle=subtitle,
        description="; ".join(
            f"{line.layer}: " + ", ".join(f"{names[k]} {figure(v)}" for k, v in line.points.items())
            for line in shown[:20]
        ),
        width=width,
        height=bottom + 46,
    )


def _changed(line: Depth) -> float:
    """Return by how many decades a layer's last point is off the middle of its good time."""
    values = list(line.points.values())
    if len(values) < 2 or not all(math.isfinite(value) and value > 0 for value in values):
        return math.inf if any(not math.isfinite(value) for value in values[1:]) else 0.0
    return abs(math.log10(values[-1] / values[0]))


def _scale(lines: Sequence[Depth]) -> Scale:
    values = [v for line in lines for v in (line.low, line.high, *line.points.values())]
    found = [value for value in values if math.isfinite(value) and value > 0]
    high = max(found, default=1.0)
    low = max(min(found, default=0.1), high / REACH)
    return Scale(kind="log", low=low / 1.6, high=high * 1.6)


def _axis(scale: Scale, x: object, *, top: float, bottom: float, ticks: int) -> list[str]:
    assert callable(x)
    parts = []
    for value, label in scale.ticks(ticks):
        at = x(value)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
            f'<text x="{at:.1f}" y="{bottom + 17:.1f}" text-anchor="middle">{label}</text>'
        )
    middle = (x(scale.low) + x(scale.high)) / 2
    further = "; layers from the input (top) to the output" if ticks > 4 else ""
    parts.append(
        f'<text x="{middle:.1f}" y="{bottom + 35:.1f}" text-anchor="middle">gradient norm (L2), '
        f"log scale{further}</text>"
    )
    return parts


def _line(line: Depth, x: object, y: float, right: float) -> list[str]:
    assert callable(x)
    told = ", ".join(f"{key} {figure(value)}" for key, value in line.points.items())
    parts = [f"<g><title>{text(line.layer)}: {text(told)}</title>"]
    if math.isfinite(line.low) and line.high > 0:
        begin = x(line.low if line.low > 0 else 0.0)
        parts.append(
            f'<line class="band" x1="{begin:.1f}" x2="{max(x(line.high), begin + 1):.1f}" '
            f'y1="{y:.1f}" y2="{y:.1f}" stroke-width="7" stroke-linecap="round"/>'
        )
    for kind, value in line.points.items():
        if math.isnan(value) or math.isinf(value):
            parts.append(
                f'<path class="{kind} cross" d="M{right - 5:.1f} {y - 4.5:.1f}l9 9m0 -9l-9 9"/>'
            )
        elif value <= 0:
            parts.append(f'<path class="{kind}" d="M{x(0.0):.1f} {y:.1f}l7 -4.5v9z"/>')
        elif kind == "onset":
            at = x(value)
            parts.append(f'<path class="onset" d="M{at:.1f} {y - 5.5:.1f}l5 5.5l-5 5.5l-5 -5.5z"/>')
        else:
            parts.append(f'<circle class="{kind}" cx="{x(value):.1f}" cy="{y:.1f}" r="4"/>')
    if line.beside:
        parts.append(f'<text x="{right + 24:.1f}" y="{y + 4:.1f}">{text(line.beside)}</text>')
    return [*parts, "</g>"]


def _legend(left: float, names: Mapping[str, str], *, column: bool) -> list[str]:
    y, x = 70.0, left
    parts = []
    for kind, told in {"band": "range while well", **names}.items():
        if kind == "band":
            parts.append(
                f'<line class="band" x1="{x:.1f}" x2="{x + 14:.1f}" y1="{y}" y2="{y}" '
                'stroke-width="7" stroke-linecap="round"/>'
            )
        elif kind == "onset":
            parts.append(f'<path class="onset" d="M{x + 7:.1f} {y - 5.5}l5 5.5l-5 5.5l-5 -5.5z"/>')
        else:
            parts.append(f'<circle class="{kind}" cx="{x + 7:.1f}" cy="{y}" r="4"/>')
        parts.append(f'<text x="{x + 20:.1f}" y="{y + 4}">{text(told)}</text>')
        x, y = (x, y + 19) if column else (x + 38 + CHARACTER * len(told), y)
    parts.append(f'<text x="{x:.1f}" y="{y + 4}">× NaN or Inf · ◂ zero</text>')
    return parts
