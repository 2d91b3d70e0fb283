"""Layers × steps as colours: where in the network gradients are large, and since when.

The colours are on a logarithmic scale, because gradients of one model span decades. A value that is
NaN or infinite has a colour of its own, and so has one that is exactly zero.
Source row B4.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from stabexp.reporting.chart import Marker
from stabexp.reporting.curve import text
from stabexp.reporting.layer_norms import LayerNorms
from stabexp.reporting.scale import step_ticks
from stabexp.reporting.svg_document import CHARACTER, Picture, shortened
from stabexp.reporting.words import figure

WIDTH = 1000
COLUMNS = 150
"""Columns at most; where more steps were measured, the largest of several is shown."""
ROWS = 120
"""Rows at most; where there are more layers, neighbours share one, which shows the largest."""
SHADES = 48
DECADES = 6
"""Decades below the largest finite value that colours tell apart."""
LOST, ZERO, NONE = "lost", "zero", "none"
"""Style classes of what has no place on the scale: NaN or Inf, exactly zero, not measured."""
STOPS = (
    (0.0, (68, 1, 84)),
    (0.13, (71, 44, 122)),
    (0.25, (59, 81, 139)),
    (0.38, (44, 113, 142)),
    (0.5, (33, 144, 141)),
    (0.63, (39, 173, 129)),
    (0.75, (92, 200, 99)),
    (0.88, (170, 220, 50)),
    (1.0, (253, 231, 37)),
)
"""The viridis scale: its lightness rises evenly, and it can be read without colour vision."""


def heatmap(
    norms: LayerNorms,
    *,
    title: str,
    subtitle: str,
    markers: Sequence[Marker] = (),
    unit: str,
    width: int = WIDTH,
) -> Picture:
    """Return the picture.

    Args:
        norms: What to show.
        title, subtitle: Above the picture.
        markers: Steps to point out.
        unit: What a colour means: "gradient norm".
        width: In px; a narrow picture has narrower names and its legend in two rows.
    """
    rows = _rows(norms)
    labels = [row[0] if len(row) == 1 else f"{row[0]} …" for row in rows]
    longest = max(len(label) for label in labels)
    left = max(64.0, 26 + min(0.3 * width, CHARACTER * longest))
    columns = _columns(norms, most=min(COLUMNS, int((width - 24 - left) / 3)))
    grid = [[_largest(norms, row, column) for column in columns] for row in rows]
    low, high = _range(grid)
    top, tall = 62.0 + 16 * len(markers), max(5.0, min(22.0, 560 / len(rows)))
    across = (width - 24 - left) / len(columns)
    parts = []
    every = max(1, math.ceil(13 / tall))
    for index, (label, values) in enumerate(zip(labels, grid, strict=True)):
        y = top + index * tall
        if index % every == 0:
            parts.append(
                f'<text class="label" x="{left - 8:.1f}" y="{y + tall / 2 + 4:.1f}" '
                f'text-anchor="end">{text(shortened(label, left - 20))}</text>'
            )
        parts += _row(values, label, x=left, y=y, across=across, tall=tall, low=low, high=high)
    bottom = top + tall * len(rows)
    starts = [column[0] for column in columns]
    # Where columns lie further apart than round steps, a column has a label of its own.
    ticks = step_ticks(starts[0], columns[-1][-1], 10 if width > 600 else 5)
    for place in dict.fromkeys(_place(starts, step) for step in ticks):
        x = left + across * (place + 0.5)
        step = starts[place]
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 17:.1f}" text-anchor="middle">{figure(step)}</text>'
        )
    middle = (left + width - 24) / 2
    parts.append(f'<text x="{middle:.1f}" y="{bottom + 34:.1f}" text-anchor="middle">step</text>')
    parts += _marked(
        markers, starts, columns[-1][-1], left=left, right=width - 24, top=top, to=bottom
    )
    legend, end = _legend(left, bottom + 52, low, high, unit, _aside(grid), width=width)
    return Picture(
        parts=[*parts, *legend],
        title=title,
        subtitle=subtitle,
        description=f"{len(norms.layers)} layers, steps {norms.steps[0]} to {norms.steps[-1]}; "
        f"{unit} from {figure(low)} to {figure(high)}",
        width=width,
        height=end,
    )


def _rows(norms: LayerNorms) -> list[tuple[str, ...]]:
    size = math.ceil(len(norms.layers) / ROWS)
    return [norms.layers[at : at + size] for at in range(0, len(norms.layers), size)]


def _columns(norms: LayerNorms, *, most: int) -> list[tuple[int, ...]]:
    size = math.ceil(len(norms.steps) / most)
    return [norms.steps[at : at + size] for at in range(0, len(norms.steps), size)]


def _largest(norms: LayerNorms, row: Sequence[str], column: Sequence[int]) -> float | None:
    """Return the largest value, NaN or Inf if there is one, None where nothing was measured."""
    values = [value for layer in row for value in norms.of(layer, column[0], column[-1])]
    broken = [value for value in values if not math.isfinite(value)]
    return broken[0] if broken else max(values, default=None)


def _range(grid: Sequence[Sequence[float | None]]) -> tuple[float, float]:
    found = [v for row in grid for v in row if v is not None and math.isfinite(v) and v > 0]
    high = max(found, default=1.0)
    low = max(min(found, default=1.0), high / 10**DECADES)
    return (low, high) if high > 1.01 * low else (high / 3, high * 3)


def _row(
    values: Sequence[float | None],
    label: str,
    *,
    x: float,
    y: float,
    across: float,
    tall: float,
    low: float,
    high: float,
) -> list[str]:
    """Return one layer's cells: a path for each shade, neighbours of one shade joined."""
    shapes: dict[str, list[str]] = {}
    begin = 0
    shades = [_shade(value, low, high) for value in values]
    for at in range(1, len(shades) + 1):
        if at < len(shades) and shades[at] == shades[begin]:
            continue
        wide = (at - begin) * across
        # A little wider and taller than it is, so that no seam shows between neighbours.
        corner = f"M{x + begin * across:.1f} {y:.1f}"
        cell = f"{corner}h{wide + 0.3:.1f}v{tall + 0.3:.1f}h-{wide + 0.3:.1f}z"
        shapes.setdefault(shades[begin], []).append(cell)
        begin = at
    finite = [v for v in values if v is not None and math.isfinite(v)]
    told = f"{figure(min(finite))} to {figure(max(finite))}" if finite else "nothing finite"
    paths = [
        f'<path class="{shade}" d="{"".join(cells)}"/>'
        if shade in {LOST, ZERO, NONE}
        else f'<path fill="{shade}" d="{"".join(cells)}"/>'
        for shade, cells in shapes.items()
    ]
    return [f'<g class="cells"><title>{text(label)}: {told}</title>', *paths, "</g>"]


def _shade(value: float | None, low: float, high: float) -> str:
    if value is None or value == 0:
        return NONE if value is None else ZERO
    if not math.isfinite(value):
        return LOST
    share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
    return colour(round(min(1.0, share) * (SHADES - 1)) / (SHADES - 1))


def colour(share: float) -> str:
    """Return the colour at a share of the scale, 0 to 1, as "#rrggbb"."""
    for (begin, one), (end, other) in itertools.pairwise(STOPS):
        if share <= end:
            part = (share - begin) / (end - begin)
            mixed = (round(a + part * (b - a)) for a, b in zip(one, other, strict=True))
            return "#" + "".join(f"{value:02x}" for value in mixed)
    return "#fde725"


def _aside(grid: Sequence[Sequence[float | None]]) -> dict[str, str]:
    """Return the style classes off the scale that the picture has, and what they mean."""
    values = {value for row in grid for value in row}
    lost = any(value is not None and not math.isfinite(value) for value in values)
    there = {LOST: lost, ZERO: 0.0 in values, NONE: None in values}
    words = {LOST: "NaN or Inf", ZERO: "exactly zero", NONE: "not measured"}
    return {kind: words[kind] for kind, is_there in there.items() if is_there}


def _place(starts: Sequence[int], step: float) -> int:
    """Return the column that shows a step."""
    return max(0, sum(start <= step for start in starts) - 1)


def _marked(
    markers: Sequence[Marker],
    starts: Sequence[int],
    last: int,
    *,
    left: float,
    right: float,
    top: float,
    to: float,
) -> list[str]:
    across = (right - left) / len(starts)
    parts = []
    for row, mark in enumerate(sorted(markers, key=lambda mark: mark.step)):
        if not starts[0] <= mark.step <= last:
            continue
        x = left + across * _place(starts, mark.step)
        label = f"{mark.label} {figure(mark.step)}"
        height = top - 7 - 16 * (len(markers) - 1 - row)  # a row for each: they can lie close
        anchor = "start" if x + len(label) * CHARACTER < right + 8 else "end"
        parts.append(
            f'<line class="halo" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{to:.1f}"/>'
            f'<line class="mark {text(mark.kind)}" x1="{x:.1f}" x2="{x:.1f}" y1="{height + 3:.1f}" '
            f'y2="{to:.1f}"/><text class="{text(mark.kind)}" x="{x:.1f}" y="{height:.1f}" '
            f'text-anchor="{anchor}">{text(label)}</text>'
        )
    return parts


def _legend(
    left: float,
    y: float,
    low: float,
    high: float,
    unit: str,
    aside: Mapping[str, str],
    *,
    width: int,
) -> tuple[list[str], float]:
    """Return the scale of colours and what lies off it, and where the picture may end."""
    narrow = width < 700
    left = 16.0 if narrow else left
    wide = min(300.0, width - 40.0)
    parts = ['<g class="cells">']
    parts += [
        f'<rect x="{left + wide * at / SHADES:.1f}" y="{y:.1f}" width="{wide / SHADES + 0.3:.1f}" '
        f'height="12" fill="{colour(at / (SHADES - 1))}"/>'
        for at in range(SHADES)
    ]
    parts.append("</g>")
    first, last = math.log10(low), math.log10(high)
    room = 0.16 * (last - first)
    powers = range(math.ceil(first + room), math.floor(last - room) + 1)
    between = [10.0**power for power in powers][:: max(1, math.ceil(len(powers) / 4))]
    for value, anchor in ((low, "start"), *((v, "middle") for v in between), (high, "end")):
        x = left + wide * (math.log10(value) - first) / (last - first)
        told = figure(float(f"{value:.2g}"))
        parts.append(f'<text x="{x:.1f}" y="{y + 27:.1f}" text-anchor="{anchor}">{told}</text>')
    x, y = (left, y + 38) if narrow else (left + wide + 24, y)
    parts.append(f'<text x="{x:.1f}" y="{y + 11:.1f}">{text(unit)}, log scale</text>')
    if narrow and aside:
        y += 20
    else:
        x += CHARACTER * (len(unit) + 15)
    for name, told in aside.items():
        parts.append(
            f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="16" height="12"/>'
            f'<text x="{x + 22:.1f}" y="{y + 11:.1f}">{told}</text>'
        )
        x += 40 + CHARACTER * len(told)
    return parts, y + (24 if narrow else 46)
