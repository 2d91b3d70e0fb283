"""What a sample is made of, whatever holds it: pictures, texts and numbers, one after the other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from stabexp.records import SamplePart
from stabexp.tasks.sample_images import as_picture, png

Decode = Callable[[Sequence[int]], str]
"""Token ids → their text."""

TEXT = 2_000
"""Characters of a text that are kept."""
VALUES = 512
"""Numbers of a part that are kept."""
PARTS = 24
"""Parts of a sample that are kept."""
DEEP = 6
"""Levels of containers that are opened."""
LISTED = 8
"""Numbers up to which they are all written out."""
IGNORED = -100
"""The label that losses leave out, by torch's default."""
TOKENS = {"input_ids", "decoder_input_ids", "tokens", "token_ids"}
"""Names of parts that hold token ids."""
TARGETS = {"labels", "label_ids", "targets", "target", "decoder_labels"}
"""Names of parts that hold token ids where there are others in the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A part, and the figures by which it is compared with those of other samples."""

    part: SamplePart
    size: int = 0
    """Numbers, or characters, in it."""
    nans: int = 0
    infinite: int = 0
    distinct: int = 0
    largest: float = 0.0
    """Largest absolute value among the finite ones."""
    low: float = math.nan
    whole: bool = False
    """Whether it holds integers or truth values."""
    ignored: int = 0
    """Labels that the loss leaves out."""
    unprintable: int = 0
    """Characters that are no text."""


def measured_parts(sample: Any, *, decode: Decode | None = None) -> list[Measured]:
    """Return what a sample holds, part by part, in its order.

    Args:
        sample: A tensor, an array, a picture, a text, a number, or tuples, lists, dicts and
            dataclasses of them.
        decode: The text of token ids, where a tokenizer is known.
    """
    leaves: list[tuple[str, Any]] = []
    for name, value in _leaves(sample, "", DEEP):
        if len(leaves) == PARTS:
            more = SamplePart(name="…", kind="unknown", text=f"more than {PARTS} parts")
            leaves.append(("…", more))
            break
        leaves.append((_cut(name)[:80], value))
    has_tokens = any(_last(name) in TOKENS for name, _ in leaves)
    found = []
    for name, value in leaves:
        known = _last(name) in TOKENS or (has_tokens and _last(name) in TARGETS)
        try:
            found.append(_measured(name, value, decode if known else None))
        except Exception as error:  # what a sample holds is the user's; the rest is shown
            found.append(Measured(part=not_shown(name, error)))
    return found


def not_shown(name: str, error: Exception) -> SamplePart:
    """Return the part that stands where something could not be read or shown."""
    told = str(error).strip().split("\n")[0][:200]
    return SamplePart(
        name=name,
        kind="unknown",
        text=f"cannot be shown: {type(error).__name__}{': ' if told else ''}{told}",
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _leaves(value: Any, name: str, deep: int) -> Iterator[tuple[str, Any]]:
    """Yield what a sample holds with its dotted name."""

    def inside(pairs: Iterator[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
        for key, inner in pairs:
            yield from _leaves(inner, f"{name}.{key}" if name else str(key), deep - 1)

    if deep == 0 or value is None:
        if value is not None:
            yield name, SamplePart(name=name, kind="unknown", text="nested too deep to be shown")
    elif isinstance(value, Mapping):
        yield from inside(iter(value.items()))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from inside(iter(zip(value._fields, value, strict=True)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        yield from inside((field.name, getattr(value, field.name)) for field in fields)
    elif isinstance(value, (list, tuple)) and not _are_numbers(value):
        if len(value) == 1:
            yield from _leaves(value[0], name, deep - 1)
        else:
            yield from inside(iter(enumerate(value)))
    else:
        yield name, value


def _are_numbers(values: Sequence[Any]) -> bool:
    """Whether a list is one part: all numbers, or rows of numbers of one length."""
    if all(isinstance(value, Number) for value in values):
        return True
    rows = all(isinstance(value, (list, tuple)) and value for value in values)
    return (
        rows
        and len({len(row) for row in values}) == 1
        and all(isinstance(value, Number) for row in values for value in row)
    )


def _measured(name: str, value: Any, decode: Decode | None) -> Measured:
    if isinstance(value, SamplePart):
        return Measured(part=value)
    if isinstance(value, str):
        return _text(name, value)
    if isinstance(value, (bytes, bytearray)):
        return _bytes(name, bytes(value))
    if isinstance(value, Set):
        return _text(name, ", ".join(map(str, value)))
    picture = getattr(value, "mode", None) is not None and hasattr(value, "getbands")
    tensor = _picture_tensor(value) if picture else _tensor(value)
    if tensor is None:
        kind = type(value).__name__
        told = f"a value of type {kind}, which cannot be shown"
        return Measured(part=SamplePart(name=name, kind="unknown", text=told))
    return _numbers(name, tensor, decode)


def _picture_tensor(image: Any) -> Tensor:
    """Return a PIL image as height × width, or height × width × channels."""
    import numpy as np

    if image.mode not in {"L", "RGB", "RGBA", "I", "F", "I;16", "1"}:
        image = image.convert("RGB")
    pixels = np.array(image)
    return torch.from_numpy(pixels.astype(np.int32) if pixels.dtype == np.uint16 else pixels)


def _tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        found = value.detach()
        if found.layout != torch.strided:
            found = found.to_dense()
        if found.is_quantized:
            found = found.dequantize()
        return found.cpu()
    if isinstance(value, Number) or hasattr(value, "__array__"):
        import numpy as np

        array = np.asarray(value)
        if array.dtype == object or array.dtype.kind in "USmM":
            return None
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = array.astype(np.int64)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape).copy())
    if isinstance(value, (list, tuple)):
        return torch.as_tensor(value)
    return None


def _text(name: str, text: str) -> Measured:
    odd = sum(not letter.isprintable() and letter not in "\n\r\t" for letter in text)
    return Measured(
        part=SamplePart(
            name=name, kind="text", text=_cut(text), shape=(len(text),), dtype="characters"
        ),
        size=len(text),
        distinct=len(set(text)),
        unprintable=odd + text.count("�"),
    )


def _cut(text: str) -> str:
    clean = "".join(
        letter if letter.isprintable() or letter in "\n\t" else "�"
        for letter in text[:TEXT].replace("\r\n", "\n")
    )
    return clean + f"… ({len(text):,} characters in all)" if len(text) > TEXT else clean


def _bytes(name: str, value: bytes) -> Measured:
    try:
        return _text(name, value.decode("utf-8"))
    except UnicodeDecodeError:
        told = f"{len(value):,} bytes, beginning with {value[:16].hex(' ')}"
        part = SamplePart(name=name, kind="unknown", text=told, shape=(len(value),), dtype="bytes")
        return Measured(part=part, size=len(value))


def _numbers(name: str, value: Tensor, decode: Decode | None) -> Measured:
    shape, kind = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    real = value.abs() if value.is_complex() else value
    flat = real.flatten().double()
    finite = flat[torch.isfinite(flat)]
    whole = not value.is_floating_point() and not value.is_complex()
    about: dict[str, Any] = {"name": name, "shape": shape, "dtype": kind}
    figures: dict[str, Any] = {
        "size": value.numel(),
        "nans": int(torch.isnan(flat).sum()),
        "infinite": int(torch.isinf(flat).sum()),
        "distinct": torch.unique(flat[:65536]).numel(),
        "largest": float(finite.abs().max()) if finite.numel() else 0.0,
        "low": float(finite.min()) if finite.numel() else math.nan,
        "whole": whole,
        "ignored": int((flat == IGNORED).sum()) if whole and flat.numel() > 1 else 0,
    }
    values = tuple(flat[:VALUES].tolist())
    if decode is not None and whole and value.dim() == 1:
        kept = [token for token in value.tolist()[: 2 * TEXT] if token >= 0]
        if (text := _decoded(decode, kept)) is not None:
            part = SamplePart(**about, kind="text", text=_cut(text), values=values)
            return Measured(part=part, **figures)
    picture = None if value.is_complex() else as_picture(value)
    if picture is not None:
        told = _line(flat, finite, shape)
        return Measured(
            part=SamplePart(**about, kind="image", text=told, image=png(picture)), **figures
        )
    told = _line(flat, finite, shape)
    return Measured(part=SamplePart(**about, kind="numbers", text=told, values=values), **figures)


def _decoded(decode: Decode, tokens: list[int]) -> str | None:
    try:
        text = decode(tokens)
    except Exception:  # ids that the tokenizer does not know: then the numbers are shown
        return None
    return text if isinstance(text, str) else None


def _line(flat: Tensor, finite: Tensor, shape: tuple[int, ...]) -> str:
    """Return "0.5, 1, nan", or "28 × 28 values, 0 to 1, mean 0.13"."""
    if 0 < flat.numel() <= LISTED:
        return ", ".join(short(number) for number in flat.tolist())
    size = " × ".join(map(str, shape))
    if finite.numel() == 0:
        return f"{size} values{', none of them finite' if flat.numel() else ''}"
    low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    if low == high:
        return f"{size} values, all {short(low)}"
    return f"{size} values, {short(low)} to {short(high)}, mean {short(mean)}"


def short(number: float) -> str:
    """Return a number in up to four digits: "3", "0.125", "1.2e+06", "nan"."""
    if math.isfinite(number) and number == int(number) and abs(number) < 1e6:
        return str(int(number))
    return f"{number:.4g}"
