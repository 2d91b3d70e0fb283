"""Samples in a terminal: pictures in shades, texts as they are, numbers in a line, what is odd."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence

from stabexp.records import SamplePart, SampleView
from stabexp.reporting.columns import wrap

SHADES = " ░▒▓█"
"""From black to white."""
CELLS = 24
"""Squares of the longer side of a picture."""
TEXT_LINES = 12
"""Lines of a text that are printed."""
NUMBERS = 8
"""Numbers that are printed of a part that has more."""


def sample_lines(
    views: Sequence[SampleView], *, asked: Collection[int] = (), width: int = 80
) -> list[str]:
    """Return samples as lines of text.

    Args:
        views: What they hold.
        asked: Ids that were asked for, which are neither at fault nor ordinary by that.
        width: Columns of a line.
    """
    lines: list[str] = []
    for view in views:
        used = "" if view.step is None else f", first used at step {view.step}"
        lines += wrap(f"sample {view.sample}{_standing(view, asked)}{used}", width, then="  ")
        for part in view.parts:
            lines += _part_lines(part, width)
        lines.append("")
    return lines[:-1]


def _standing(view: SampleView, asked: Collection[int]) -> str:
    if view.blamed:
        return ", at fault"
    if view.stood_out:
        return ", stood out"
    return "" if view.sample in asked else ", an ordinary one"


def _part_lines(part: SamplePart, width: int) -> Iterator[str]:
    head = f"  {part.name}" if part.name else " "
    size = " × ".join(map(str, part.shape))
    if part.kind == "text":
        yield f"{head}  text{f', {size} {part.dtype}' if size else ''}"
    elif part.kind == "numbers" and part.values and len(part.values) > 8:
        first = ", ".join(f"{value:.4g}" for value in part.values[:NUMBERS])
        yield from wrap(
            f"{part.text}, {part.dtype}: {first}, …", width, first=f"{head}  ", then="    "
        )
    else:
        yield from wrap(part.text, width, first=f"{head}  ", then="    ")
    if part.unusual:
        yield from wrap(part.unusual, width, first="    ! ", then="      ")
    if part.kind == "text":
        yield from _text_lines(part.text, width)
    elif part.image:
        own = max(part.shape[-3:], default=CELLS)  # a small picture is stored enlarged
        yield from (f"    {row}".rstrip() for row in shaded(part.image, cells=min(own, CELLS)))


def _text_lines(text: str, width: int) -> Iterator[str]:
    lines = [
        line
        for paragraph in text.split("\n")
        for line in wrap(paragraph, width, first="    │ ", then="    │ ")
    ]
    yield from lines[:TEXT_LINES]
    if len(lines) > TEXT_LINES:
        yield f"    │ … {len(lines) - TEXT_LINES} more lines"


def shaded(image: str, *, cells: int = CELLS) -> list[str]:
    """Return a picture of ours as rows of shades, two columns a square; [] for any other PNG.

    Args:
        image: A PNG in base64, as `records.SamplePart` has it.
        cells: Squares of its longer side at most.
    """
    try:
        grey = _grey(base64.b64decode(image))
    except (binascii.Error, struct.error, zlib.error, ValueError, IndexError, KeyError):
        return []
    height, width = len(grey), len(grey[0])
    across = min(width, max(1, cells * width // max(width, height)))
    down = min(height, max(1, cells * height // max(width, height)))
    rows = []
    for row in range(down):
        lines = grey[row * height // down : (row + 1) * height // down]
        shades = []
        for column in range(across):
            begin, end = column * width // across, (column + 1) * width // across
            values = [value for line in lines for value in line[begin:end]]
            level = sum(values) / len(values) / 256
            shades.append(2 * SHADES[int(level * len(SHADES))])
        rows.append("".join(shades))
    return rows


def _grey(png: bytes) -> list[list[float]]:
    """Return the brightness, 0 to 255, of a PNG whose rows are stored without a filter."""
    at, packed, width, height, colour = 8, b"", 0, 0, 0
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[:10])
            if depth != 8 or data[12]:
                raise ValueError("only eight bits a channel, in one pass")
        elif kind == b"IDAT":
            packed += data
        at += 12 + length
    channels = {0: 1, 2: 3, 6: 4}[colour]
    raw, stride = zlib.decompress(packed), width * channels + 1
    rows = []
    for row in range(height):
        line = raw[row * stride : (row + 1) * stride]
        if line[0]:
            raise ValueError("only rows without a filter")
        pixels = line[1:]
        if channels == 1:
            rows.append([float(value) for value in pixels])
        else:
            rows.append(
                [
                    0.299 * pixels[i] + 0.587 * pixels[i + 1] + 0.114 * pixels[i + 2]
                    for i in range(0, len(pixels), channels)
                ]
            )
    return rows
