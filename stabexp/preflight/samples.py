"""Every row of a batch is a sample of its own, whole, and as many come as were asked for.

Duplicates, rows that are nothing but padding, sequences cut off at a length, batches that shrink in
a collate function: none of them raises, and all of them are learned (source rows B7, B11).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from stabexp.instruments.rule_base import Finding, Rule, tensors

LONG = 16
"""Elements of a row from which on two equal rows are no chance."""
LONG_TEXT = 32
"""The same for tokens, padding not counted: short lines of a text do come again."""


def digests(rows: Tensor) -> list[bytes]:
    """Return a digest of every row of (n, …) values; b"" for one whose values are all the same."""
    flat = rows.detach().flatten(1).cpu().contiguous()
    same = (flat == flat[:, :1]).all(1).tolist()
    bytes_ = flat.view(torch.uint8).numpy()
    return [
        b"" if constant else hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        for row, constant in zip(bytes_, same, strict=True)
    ]


class DuplicateSamples(Rule):
    """Samples of different ids are different samples."""

    slug: ClassVar[str] = "duplicate_samples"

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._ids: set[int] = set()
        self._doubles: list[tuple[int, int, int]] = []

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        given = [t for t in tensors(batch) if t.dim() > 1 and t[0].numel() >= LONG]
        if not given or given[0].shape[0] != len(ids) or given[0].dtype == torch.bool:
            return
        if not given[0].is_floating_point():
            lengths = _lengths(batch)
            longest = max(lengths[0]) if lengths else given[0][0].numel()
            if longest < LONG_TEXT:
                return
        for number, digest in zip(ids, digests(given[0]), strict=True):
            if number in self._ids or not digest:
                continue
            self._ids.add(number)
            first = self._known.setdefault(digest, number)
            if first != number:
                self._doubles.append((step, first, number))

    def finding(self) -> Finding | None:
        if len(self._doubles) < max(4, 0.1 * len(self._ids)):
            return None
        step, first, second = self._doubles[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=f"samples {first} and {second}",
            detail=f"{len(self._doubles)} of {len(self._ids)} samples that were looked at are bit "
            "for "
            f"bit the same as another one; the first are {first} and {second}",
            remedy="remove duplicates before splitting the data, or count them on purpose with a "
            "weighted sampler",
            strength="suspicious",
            samples=tuple(number for _, _, number in self._doubles[:16]),
        )


class EmptySamples(Rule):
    """No sample is padding only, and no image or passage is blank."""

    slug: ClassVar[str] = "empty_samples"

    def __init__(self) -> None:
        self._seen: list[tuple[int, int, str]] = []
        self._rows = 0

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
        if isinstance(mask, Tensor) and mask.dim() == 2:
            self._rows += len(mask)
            self._note(step, ids, mask.sum(1) == 0, "has an attention mask of zeros")
            return
        given = [t for t in tensors(batch) if t.dim() > 1 and t[0].numel() >= LONG]
        if not given:
            return
        flat = given[0].flatten(1)
        self._rows += len(flat)
        same = (flat == flat[:, :1]).all(1)
        if not flat.is_floating_point() and (padding := _padding(flat)) is None:
            return  # sixteen blanks in a row are text like any other
        elif not flat.is_floating_point():
            same &= flat[:, 0] == padding
        self._note(step, ids, same, "holds one value throughout")

    def _note(self, step: int, ids: Sequence[int], empty: Tensor, how: str) -> None:
        rows = empty.nonzero().flatten().tolist()
        numbers = list(ids) if len(ids) == len(empty) else [-1] * len(empty)
        self._seen += [(step, numbers[row], how) for row in rows]

    def finding(self) -> Finding | None:
        masked = any("mask" in how for _, _, how in self._seen)
        if not self._seen or (not masked and len(self._seen) < max(3, 0.02 * self._rows)):
            return None
        step, number, how = self._seen[0]
        samples = tuple(sorted({number for _, number, _ in self._seen if number >= 0}))
        return Finding(
            rule=self.slug,
            step=step,
            place=f"sample {number}" if number >= 0 else f"batch of step {step}",
            detail=f"{len(self._seen)} of {self._rows} samples are empty: the first {how}",
            remedy="leave such samples out, or look for why they could not be read",
            strength="suspicious",
            samples=samples[:16],
        )


class CutSamples(Rule):
    """Sequences end where they end, not all at one length."""

    slug: ClassVar[str] = "cut_samples"

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._widths: set[int] = set()

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        lengths = _lengths(batch)
        if lengths is not None:
            self._lengths += [length for length in lengths[0] if length]
            self._widths.add(lengths[1])

    def finding(self) -> Finding | None:
        if len(self._lengths) < 32 or len(self._widths) != 1:
            return None
        (width,) = self._widths
        full = sum(length == width for length in self._lengths)
        shorter = sorted(length for length in self._lengths if length < width)
        if len(shorter) < 8 or full < 0.1 * len(self._lengths) or full < 8:
            return None
        # How many would end exactly at the limit if it cut nothing off: as many as just below it.
        below = max(2, width // 8)
        near = sum(length >= width - below for length in shorter)
        if full <= 4 * max(near / below, 1):
            return None
        return Finding(
            rule=self.slug,
            step=0,
            place=f"sequences of length {width}",
            detail=f"{full} of {len(self._lengths)} sequences are exactly {width} long and only "
            f"{near} "
            f"end within {below} before: they were cut there; half of the others are shorter than "
            f"{shorter[len(shorter) // 2]}",
            remedy="raise max_length, split long samples, or count what is cut off and decide",
            strength="suspicious",
        )


def _lengths(batch: Any) -> tuple[list[int], int] | None:
    """Return the lengths of a batch's sequences and the width they are padded to."""
    if isinstance(batch, Mapping) and isinstance(batch.get("attention_mask"), Tensor):
        mask = batch["attention_mask"]
        return (mask.sum(1).tolist(), mask.shape[1]) if mask.dim() == 2 else None
    rows = next((t for t in tensors(batch) if t.dim() == 2 and not t.is_floating_point()), None)
    if rows is None or rows.shape[1] < LONG or not len(rows):
        return None
    padding = _padding(rows)
    if padding is None:
        return None
    return (rows.shape[1] - _trailing(rows, padding)).tolist(), rows.shape[1]


def _padding(rows: Tensor) -> int | None:
    """Return the token that only ends sequences, and ends several; None where none does."""
    for padding in torch.unique(rows[:, -1]).tolist():
        trailing = _trailing(rows, padding)
        elsewhere = int((rows == padding).sum()) - int(trailing.sum())
        several = int((trailing > 0).sum()) >= 2 and int(trailing.max()) >= 2
        if several and elsewhere <= 0.01 * rows.numel():
            return int(padding)
    return None


def _trailing(rows: Tensor, padding: int) -> Tensor:
    """Return how many tokens at the end of each row are padding."""
    inside = (rows != padding).flip(1)
    first = inside.to(torch.uint8).argmax(1)
    return torch.where(inside.any(1), first, rows.shape[1])


class BatchShrinks(Rule):
    """As many samples come as the sampler asked for."""

    slug: ClassVar[str] = "batch_shrinks"

    def __init__(self) -> None:
        self._short: list[tuple[int, int, int]] = []
        self._batches = 0

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        given = [t for t in tensors(batch) if t.dim()]
        if len(ids) < 2 or not given or len({len(t) for t in given}) != 1:
            return
        self._batches += 1
        if len(given[0]) < len(ids):
            self._short.append((step, len(given[0]), len(ids)))

    def finding(self) -> Finding | None:
        if not self._short:
            return None
        step, came, asked = self._short[0]
        return Finding(
            rule=self.slug,
            step=step,
            place=f"batch of step {step}",
            detail=f"{came} samples came where {asked} were asked for, in {len(self._short)} of "
            f"{self._batches} batches",
            remedy="look at the collate function: samples that cannot be read are left out there; "
            "leave them out of the dataset instead",
        )
