"""A picture in a sample as a PNG: which tensors are pictures, and how their values become colours.

A picture that is far too bright is shown in its own range, so that one sees what it is; how far it
is out of range is said beside it. A value that is not finite is red.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST = 256
"""Pixels of the longer side, at most."""
SMALLEST = 64
"""Pixels of the longer side below which each value becomes a square of several."""
SIDE = 6
"""Values of the shorter side from which on a matrix is taken for a picture."""
STRETCH = 12.0
"""Most times that one side is as long as the other."""
FLAT = {784: (1, 28, 28), 1024: (1, 32, 32), 3072: (3, 32, 32)}
"""Lengths of vectors that are known pictures: MNIST's, and those of 32 × 32."""
CHANNELS = (1, 3, 4)
RED = (220, 30, 30)


def as_picture(value: Tensor) -> Tensor | None:
    """Return a tensor as channels × height × width, None when its shape is not a picture's.

    Height × width, channels first and channels last are known, frames of which the first is taken,
    and flattened pictures of usual sizes.
    """
    if value.is_complex() or value.numel() == 0:
        return None
    if value.dim() == 1 and value.numel() in FLAT and _is_brightness(value):
        return value.reshape(FLAT[value.numel()])
    if value.dim() == 4:
        value = value[0]
    if value.dim() == 2:
        value = value[None]
    if value.dim() != 3:
        return None
    if value.shape[0] not in CHANNELS:
        if value.shape[-1] not in CHANNELS:
            return None
        value = value.movedim(-1, 0)
    height, width = value.shape[1:]
    short, long = sorted((height, width))
    return value if short >= SIDE and long <= STRETCH * short else None


def _is_brightness(value: Tensor) -> bool:
    """Whether a vector could be a row of pixels: of integers only bytes are."""
    return value.is_floating_point() or value.dtype == torch.uint8


def png(picture: Tensor) -> str:
    """Return a picture as a PNG in base64, at most 256 pixels wide and high.

    Args:
        picture: Channels × height × width: grey, RGB, or RGB with opacity, of any dtype.
    """
    bad = (~torch.isfinite(picture)).any(0) if picture.is_floating_point() else None
    bytes_ = _as_bytes(picture)
    if bad is not None and bad.any():
        bytes_ = bytes_[:3].expand(3, -1, -1).clone()
        for channel, shade in enumerate(RED):
            bytes_[channel][bad] = shade
    return base64.b64encode(_encode(_fitted(bytes_))).decode("ascii")


def _as_bytes(picture: Tensor) -> Tensor:
    """Return the values as 0 to 255: bytes as they are, fractions of one, else by their range."""
    if picture.dtype == torch.uint8:
        return picture
    values = picture.double()
    finite = values[torch.isfinite(values)]
    if finite.numel() == 0:
        return torch.zeros(picture.shape, dtype=torch.uint8)
    low, high = float(finite.min()), float(finite.max())
    if not picture.is_floating_point() and low >= 0 and 1 < high <= 255:
        low, high = 0.0, 255.0
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= -1 and high <= 1:
        low, high = -1.0, 1.0
    else:
        low, high = _without_single(finite, low, high)
    span = high - low or 1.0
    scaled = (values.nan_to_num(low, high, low) - low) / span
    return scaled.clamp(0, 1).mul(255).round().to(torch.uint8)


def _without_single(finite: Tensor, low: float, high: float) -> tuple[float, float]:
    """Return the range to show: without single values that would leave all others in one colour."""
    ordered = finite.flatten().sort().values
    cut = len(ordered) // 50
    inner_low, inner_high = float(ordered[cut]), float(ordered[-1 - cut])
    inner = inner_high - inner_low
    if math.isfinite(high - low) and (inner == 0 or high - low <= 20 * inner):
        return low, high
    return (inner_low, inner_high) if inner > 0 else (low, low + 1)


def _fitted(picture: Tensor) -> Tensor:
    side = max(picture.shape[1:])
    if side > LARGEST:
        size = [max(1, round(length * LARGEST / side)) for length in picture.shape[1:]]
        reduced = F.interpolate(picture[None].float(), size=size, mode="area")[0]
        return reduced.round().to(torch.uint8)
    times = max(1, SMALLEST // side)
    return picture.repeat_interleave(times, 1).repeat_interleave(times, 2)


def _encode(picture: Tensor) -> bytes:
    """Return a PNG file of channels × height × width bytes."""
    channels, height, width = picture.shape
    rows = picture.movedim(0, -1).contiguous().numpy().reshape(height, width * channels)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    colour = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
