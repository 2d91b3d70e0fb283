"""A picture as an SVG file of its own, or as a part of the page, with the same colours.

MLflow shows the file as an image, where no style sheet of a page reaches it. So it brings a
background, and follows the reader's colour scheme by itself. In the page the page's colours hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.reporting.curve import text

_COLOURS = """\
svg{--paper:#fff;--ink:#1a1e23;--soft:#555e69;--grid:#e7eaee;--band:#aab4c2;--none:#eef0f3;--zero:#8a94a0;
--before:#0b5cad;--onset:#a14207;--end:#b3202c;
font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--paper:#14171b;--ink:#e8eaed;--soft:#a9b2bd;--grid:#272c33;
--band:#566170;--none:#1d2126;--zero:#727c88;--before:#7db8f5;--onset:#f79a66;--end:#ff7f7f}}
"""
_RULES = {
    ".paper": "fill:var(--paper)",
    "text": "fill:var(--soft)",
    ".title": "fill:var(--ink);font-size:16px;font-weight:640",
    ".label": "fill:var(--ink)",
    ".grid": "stroke:var(--grid)",
    ".none": "fill:var(--none)",
    ".zero": "fill:var(--zero)",
    ".cells": "shape-rendering:crispEdges",
    ".halo": "stroke:var(--paper);stroke-width:5;stroke-opacity:.7",
    ".lost": "fill:var(--end)",
    ".mark": "stroke:var(--end);stroke-width:2;stroke-dasharray:4 3",
    ".mark.onset": "stroke:var(--onset)",
    ".mark.good": "stroke:var(--before)",
    ".band": "stroke:var(--band)",
    ".before": "fill:var(--before);stroke:var(--before)",
    ".onset": "fill:var(--onset);stroke:var(--onset)",
    ".end": "fill:var(--end);stroke:var(--end)",
    "text.before": "stroke:none",
    "text.good": "fill:var(--before)",
    "text.onset": "stroke:none",
    "text.end": "stroke:none;font-weight:400",
    ".cross": "fill:none;stroke-width:2.2",
}

CHARACTER = 6.6
"""Width of a 12 px character, in px; close enough to keep text apart."""
_HEADROOM = 50.0
"""Height of title and subtitle, in px; the page has them outside the picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is drawn, below 56 px that are left for title and subtitle."""

    parts: Sequence[str]
    title: str
    subtitle: str
    description: str
    width: int
    height: float


def style(scope: str = "") -> str:
    """Return the style rules of pictures, for those below one selector where one is given."""
    below = f"{scope} " if scope else ""
    return "\n".join(f"{below}{selector}{{{rules}}}" for selector, rules in _RULES.items())


def svg_document(picture: Picture) -> str:
    """Return a whole SVG file, with its title and subtitle on top."""
    width, height = picture.width, f"{picture.height:.0f}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
            f"<title>{text(picture.title)}</title><desc>{text(picture.description)}</desc>",
            f"<style>{_COLOURS}{style()}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            f'<text class="title" x="16" y="24">{text(picture.title)}</text>',
            f'<text x="16" y="43">{text(picture.subtitle)}</text>',
            *picture.parts,
            "</svg>\n",
        ]
    )


def svg_inside(picture: Picture, *, name: str) -> str:
    """Return the picture as an element of a page, which has the style rules and the title.

    Args:
        name: Unique on the page; the ids inside the picture begin with it.
    """
    height = picture.height - _HEADROOM
    return "".join(
        [
            f'<svg class="chart picture" role="img" width="{picture.width}" height="{height:.0f}" '
            f'viewBox="0 {_HEADROOM:.0f} {picture.width} {height:.0f}" '
            f'aria-labelledby="{name}-title {name}-desc">',
            f'<title id="{name}-title">{text(picture.title)}</title>',
            f'<desc id="{name}-desc">{text(picture.description)}</desc>',
            *picture.parts,
            "</svg>",
        ]
    )


def shortened(name: str, room: float) -> str:
    """Return a name that fits into so many px; its end says more than its beginning."""
    most = max(4, int(room / CHARACTER))
    return name if len(name) <= most else "…" + name[-(most - 1) :]
