"""The samples at fault as they are, beside ordinary ones: pictures, texts, numbers.

What a sample holds comes from the data of a stranger, so nothing of it is trusted: a picture must
be a PNG of bounded size, a text stays text, and a number may be NaN.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stabexp.records import SamplePart, SampleView
from stabexp.reporting import words
from stabexp.reporting.curve import text

BLAMED, ORDINARY = 12, 4
"""Samples shown at most: at fault or standing out, and ordinary."""
MOST_TEXT = 2000
"""Characters of one text that are shown."""
MOST_VALUES = 64
"""Numbers of one part that are drawn."""
MOST_IMAGE = 400_000
"""Bytes of one picture, and a third of the bytes of all of them, at most."""
SMALL = 160
"""Pictures with fewer pixels a side are enlarged, pixel by pixel."""

_PNG = b"\x89PNG\r\n\x1a\n"
_STRIP_WIDTH, _STRIP_HEIGHT = 256, 44


@dataclass(frozen=True, slots=True, kw_only=True)
class PartShown:
    """One part of a sample, ready for the page."""

    name: str
    kind: str
    facts: str
    """Shape, type or script in a few words."""
    unusual: str
    text: str = ""
    left_out: int = 0
    """Characters that are not shown."""
    direction: str = "auto"
    source: str = ""
    """Base64 of a PNG that was found to be one."""
    width: int = 0
    height: int = 0
    """Size of the picture on the page, in px."""
    small: bool = False
    strip: str = ""
    """The numbers as SVG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleShown:
    """One sample, ready for the page."""

    sample: int
    standing: Literal["at fault", "stands out", "ordinary"]
    step: int | None
    parts: tuple[PartShown, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSection:
    """Samples at fault first, then those that stood out, ordinary ones last."""

    samples: tuple[SampleShown, ...] = ()
    left_out: int = 0
    """Samples at fault, or that stood out, for which there was no room."""


def sample_section(samples: Sequence[SampleView]) -> SampleSection:
    """Return what the page shows of the samples."""
    by_standing: dict[str, list[SampleView]] = {"at fault": [], "stands out": [], "ordinary": []}
    for sample in samples:
        by_standing[_standing(sample)].append(sample)
    named = [*by_standing["at fault"], *by_standing["stands out"]]
    shown = [*named[:BLAMED], *by_standing["ordinary"][:ORDINARY]]
    ranges = _ranges(shown)
    room = 3 * MOST_IMAGE
    found = []
    for sample in shown:
        parts = []
        for part in sample.parts:
            ready = _part(part, ranges.get(part.name, (0.0, 1.0)), room)
            room -= len(ready.source)
            parts.append(ready)
        found.append(
            SampleShown(
                sample=sample.sample,
                standing=_standing(sample),
                step=sample.step,
                parts=tuple(parts),
            )
        )
    return SampleSection(samples=tuple(found), left_out=max(0, len(named) - BLAMED))


def _standing(sample: SampleView) -> Literal["at fault", "stands out", "ordinary"]:
    if sample.blamed:
        return "at fault"
    return "stands out" if sample.stood_out else "ordinary"


def _part(part: SamplePart, span: tuple[float, float], room: int) -> PartShown:
    name = f"part {part.name}" if part.name.isdecimal() else part.name
    shape = " × ".join(str(size) for size in part.shape)
    if len(part.shape) == 1:
        shape = words.count(part.shape[0], "number")
    facts = ", ".join(word for word in (shape, part.dtype) if word)
    if part.kind == "image":
        size = _png_size(part.image)
        if size is None or len(part.image) > min(room, MOST_IMAGE):
            told = "not a picture that can be shown" if size is None else "too large to be shown"
            return PartShown(
                name=name, kind="unknown", facts=facts, unusual=part.unusual, text=told
            )
        factor = max(1, SMALL // max(size)) if max(size) < SMALL else 1
        return PartShown(
            name=name,
            kind="image",
            facts=words.one_line(part.text) or facts or f"{size[0]} × {size[1]}",
            unusual=part.unusual,
            source=part.image,
            width=size[0] * factor,
            height=size[1] * factor,
            small=factor > 1,
        )
    if part.kind == "text":
        told = f"{script_of(part.text)}, {words.count(len(part.text), 'character')}"
        return PartShown(
            name=name,
            kind="text",
            facts=told if part.text.strip() else "empty" if not part.text else "only white space",
            unusual=part.unusual,
            text=part.text[:MOST_TEXT],
            left_out=max(0, len(part.text) - MOST_TEXT),
            direction=direction_of(part.text),
        )
    return PartShown(
        name=name,
        kind=part.kind,
        facts=facts,
        unusual=part.unusual,
        text=part.text[:MOST_TEXT],
        left_out=max(0, len(part.text) - MOST_TEXT),
        strip=_strip(part.values[:MOST_VALUES], span) if len(part.values) > 1 else "",
    )


def _png_size(image: str) -> tuple[int, int] | None:
    """Return the width and height of a base64 PNG, None when it is none."""
    try:
        start = base64.b64decode(image[:64], validate=True)
        base64.b64decode(image[64:], validate=True)
    except (binascii.Error, ValueError):
        return None
    if not start.startswith(_PNG) or len(start) < 24:
        return None
    width, height = struct.unpack(">II", start[16:24])
    return (width, height) if 0 < width <= 20_000 and 0 < height <= 20_000 else None


def direction_of(written: str) -> str:
    """Return "rtl" or "ltr", by the first character that has a direction; else "auto"."""
    for char in written:
        kind = unicodedata.bidirectional(char)
        if kind in {"R", "AL"}:
            return "rtl"
        if kind == "L":
            return "ltr"
    return "auto"


_SCRIPTS = {
    "CJK": "Chinese characters",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "HANGUL": "Korean",
    "LATIN": "Latin",
}


def script_of(written: str) -> str:
    """Return the scripts of a text in words, the most frequent first: "Latin, Arabic"."""
    counts: dict[str, int] = {}
    for char in written[:MOST_TEXT]:
        if char.isalpha():
            begin = unicodedata.name(char, "UNKNOWN").replace("FULLWIDTH ", "").split()[0]
            found = _SCRIPTS.get(begin.split("-")[0], begin.split("-")[0].capitalize())
            counts[found] = counts.get(found, 0) + 1
        elif unicodedata.category(char) == "So":
            counts["symbols"] = counts.get("symbols", 0) + 1
    if not counts:
        return "no letters"
    ordered = sorted(counts, key=lambda name: -counts[name])
    told = ", ".join(ordered[:3])
    return f"{told}, right to left" if direction_of(written) == "rtl" else told


def _ranges(samples: Iterable[SampleView]) -> Mapping[str, tuple[float, float]]:
    """Return, per part, the span of its finite numbers over all samples, zero included."""
    found: dict[str, tuple[float, float]] = {}
    for sample in samples:
        for part in sample.parts:
            finite = [v for v in part.values[:MOST_VALUES] if math.isfinite(v)]
            low, high = found.get(part.name, (0.0, 0.0))
            found[part.name] = (min([low, *finite]), max([high, *finite]))
    return found


def _strip(values: Sequence[float], span: tuple[float, float]) -> str:
    """Return numbers as bars from zero, all samples on one scale, so that a giant shows."""
    low, high = span if span[1] / 2 - span[0] / 2 > 0 else (0.0, 1.0)
    across = _STRIP_WIDTH / max(len(values), 16)

    def y(value: float) -> float:
        # Halved before subtracting: the two may be near the ends of what a float holds.
        share = (value / 2 - low / 2) / (high / 2 - low / 2)
        return 2 + (1 - share) * (_STRIP_HEIGHT - 4)

    zero, parts = y(0.0), []
    for index, value in enumerate(values):
        x = index * across
        if not math.isfinite(value):
            parts.append(
                f'<path class="lost" d="M{x + across / 2 - 2.5:.1f} {_STRIP_HEIGHT / 2 - 2.5:.1f}'
                'l5 5m0 -5l-5 5"/>'
            )
            continue
        top, tall = min(y(value), zero), max(abs(y(value) - zero), 0.6)
        parts.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(across - 0.8, 0.8):.1f}" '
            f'height="{tall:.1f}"/>'
        )
    told = ", ".join(words.figure(value) for value in values[:12])
    more = f" and {len(values) - 12} more" if len(values) > 12 else ""
    return (
        f'<svg class="numbers" role="img" viewBox="0 0 {_STRIP_WIDTH} {_STRIP_HEIGHT}" '
        f'width="{_STRIP_WIDTH}" height="{_STRIP_HEIGHT}" aria-label="{text(told + more)}">'
        f'<line x1="0" x2="{_STRIP_WIDTH}" y1="{zero:.1f}" y2="{zero:.1f}"/>{"".join(parts)}</svg>'
    )
