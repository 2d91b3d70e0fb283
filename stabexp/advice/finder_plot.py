"""The ramp as a picture: losses, their moving average, and where the figures lie, as one SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from stabexp.advice.lr_finder import FoundRate

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 24, 44


def finder_svg(found: FoundRate, *, title: str) -> str:
    """Return the SVG document; losses above the start are held at its upper edge."""
    shown = found.smoothed
    start = max(found.losses[: max(1, len(found.losses) // 4)])
    low = min(*shown, *(loss for loss in found.losses if math.isfinite(loss)))
    high = max(start, low + 1e-12)
    room = 0.05 * (high - low)
    low, high = low - room, high + room
    first, last = math.log10(found.rates[0]), math.log10(found.rates[-1])

    def x(rate: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(rate) - first) / max(last - first, 1e-9)

    def y(loss: float) -> float:
        held = high if not math.isfinite(loss) else min(max(loss, low), high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - held) / (high - low)

    def line(values: Sequence[float], style: str) -> str:
        points = " ".join(
            f"{x(rate):.1f},{y(value):.1f}"
            for rate, value in zip(found.rates, values, strict=False)
        )
        return f'<polyline points="{points}" fill="none" {style}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="16">{escape(title)}</text>',
    ]
    for power in range(math.ceil(first), math.floor(last) + 1):
        place = x(10.0**power)
        parts.append(
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
            'stroke="#e3e3e3"/>'
            f'<text x="{place:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
            f"1e{power}</text>"
        )
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        parts.append(
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        "learning rate</text>"
    )
    parts.append(line(found.losses, 'stroke="#b8b8b8" stroke-width="1"'))
    parts.append(line(shown, 'stroke="#1565c0" stroke-width="2"'))
    marks = {"steepest": found.suggestion.steepest, "suggestion": found.figure}
    for index, (name, rate) in enumerate(marks.items()):
        place = x(min(max(rate, found.rates[0]), found.rates[-1]))
        parts.append(
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
            'stroke="#c62828" stroke-dasharray="4 3"/>'
            f'<text x="{place - 4:.1f}" y="{TOP + 14 + 16 * index}" text-anchor="end" '
            f'fill="#c62828">{name} {rate:.2g}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
