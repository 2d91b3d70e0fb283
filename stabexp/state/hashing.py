"""Two states are equal when their hashes are: bit for bit, whatever file or layout they came in.

`state_hash` is for checkpoints: cryptographic, over everything. `parameter_digest` is for every
step: one number on the parameters' own device, that nothing has to wait for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from stabexp.state.plain_values import leaves
from stabexp.state.snapshot import Snapshot


def state_hash(snapshot: Snapshot) -> str:
    """Return the SHA-256, 64 hexadecimal digits, over names, dtypes, shapes and bits of all state.

    The order of dicts, memory layout (strides), ties and the file format make no difference.
    """
    digest = hashlib.sha256()
    for path, leaf in leaves(snapshot.to_payload()):
        for part in (repr(path), _describe(leaf)):
            digest.update(f"{len(part)}:{part}".encode())
        if isinstance(leaf, Tensor) and leaf.numel():
            digest.update(_bytes(leaf).numpy().data)
    return digest.hexdigest()


def first_difference(a: Snapshot, b: Snapshot) -> str | None:
    """Return what differs first, in one phrase for a message, or None when nothing does."""
    for one, other in zip_longest(leaves(a.to_payload()), leaves(b.to_payload())):
        if one is None or other is None or one[0] != other[0]:
            path = min(pair[0] for pair in (one, other) if pair is not None)
            return f"{_name(path)} is only in one of the two"
        (path, left), right = one, other[1]
        if _describe(left) != _describe(right):
            return f"{_name(path)}: {_short(left)} and {_short(right)}"
        if isinstance(left, Tensor) and not torch.equal(_bytes(left), _bytes(right)):
            return f"{_name(path)}: {_element_difference(left, right)}"
    return None


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bits in logical order, 1-d uint8; no copy when the tensor is contiguous."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _describe(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{leaf.dtype}{tuple(leaf.shape)}"
    if isinstance(leaf, set):
        return f"set {sorted(map(repr, leaf))}"
    if isinstance(leaf, dict):  # an empty one: leaves() walks into the others
        return "dict {}"
    return f"{type(leaf).__name__} {leaf!r}"


def _short(leaf: Any) -> str:
    text = _describe(leaf)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _name(path: tuple[str, ...]) -> str:
    """Return the path without the levels that only say how a snapshot is built."""
    inner = [part for part in path if part not in {"objects", "value"}]
    return ".".join(inner)


def _element_difference(left: Tensor, right: Tensor) -> str:
    size = left.element_size()
    wrong = (_bytes(left) != _bytes(right)).view(-1, size).any(dim=1)
    index = int(wrong.nonzero()[0])
    pair = (left.contiguous().reshape(-1)[index], right.contiguous().reshape(-1)[index])
    return (
        f"{int(wrong.sum())} of {left.numel()} elements differ, first element {index}: "
        f"{pair[0].item()!r} and {pair[1].item()!r}"
    )


_WORDS = {"cpu": 1 << 17}
"""8-byte words taken at once. On a CPU as many as stay in its cache from one pass to the next."""

_WORDS_ELSEWHERE = 1 << 20
"""On a GPU, where starting an operation costs more than memory does: 16 MiB of working memory."""

_LARGE = 1 << 13
"""Bytes from which on a tensor is not worth copying to others."""


@torch.no_grad()
def parameter_digest(tensors: Iterable[Tensor]) -> Tensor:
    """Return a number over the bits of all tensors in order: 0-d, int64, on their device.

    Their bytes are read as 64-bit words. Of many, sums along rows and along columns stand for them.
    All are added up, each times an odd number of its own, modulo 2**64. So a flipped bit, swapped
    words or tensors, and changes that would cancel in a plain sum, show but for one case in
    billions. Nothing waits for the device. Memory layout makes no difference.

    Args:
        tensors: Dense, of any dtypes and shapes. Spread over devices, the first one's is used.
    """
    groups: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor)
    sums = [part for device, group in groups.items() for part in _weighted(group, device)]
    if not sums:
        return torch.zeros((), dtype=torch.int64)
    first = sums[0].device
    total = sums[0]
    if len(sums) > 1:
        stacked = torch.stack([part.to(first, non_blocking=True) for part in sums])
        total = (stacked * _factors(first, len(sums), _FOR_CHUNKS)).sum()
    return total


def _weighted(tensors: Iterable[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield the weighted sum of each chunk of the bytes, 0-d."""
    limit = _WORDS.get(device.type, _WORDS_ELSEWHERE)
    factors = _factors(device, limit, _FOR_WORDS)
    room = torch.empty(limit, dtype=torch.int64, device=device)
    for words in map(_summed, _chunks(tensors, limit)):
        size = words.numel()
        # A product keeps nothing of the factor beyond the sign bit it is multiplied with: two
        # flipped signs would cancel. So the high bits are mixed into the low ones first.
        mixed = torch.bitwise_right_shift(words, 40, out=room[:size]).bitwise_xor_(words)
        # CUDA has no integer dot product; on a CPU it saves writing the products to memory.
        cpu = device.type == "cpu"
        yield torch.dot(mixed, factors[:size]) if cpu else (mixed * factors[:size]).sum()


_ROW, _MANY = 63, 1 << 14
"""Words in a row, and from how many words on sums are cheaper than the words: two fast passes over
memory in place of a slow one. With at least as many rows as a row has words, two words of one row
are never in one column, so changes to any two words cannot cancel in both. Odd, so that all signs
that flip at once do not cancel either."""


def _summed(words: Tensor) -> Tensor:
    """Return the sums of the rows and of the columns of many words, and the words of few."""
    if words.numel() < _MANY:
        return words
    rows = words.numel() // _ROW
    whole = words[: rows * _ROW]
    along, across = whole.view(rows, _ROW).sum(1), whole.view(_ROW, rows).sum(0)
    return torch.cat([along, across, words[rows * _ROW :]])


def _chunks(tensors: Iterable[Tensor], limit: int) -> Iterator[Tensor]:
    """Yield the bytes as 64-bit words: of a large tensor as they lie, of small ones together."""
    small: list[Tensor] = []
    held = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if size >= _LARGE and size % 8 == 0:
            flat = tensor.detach().reshape(-1)
            if flat.storage_offset() * flat.element_size() % 8:
                flat = flat.clone()
            words = flat.view(torch.int64)
            yield from (words,) if words.numel() <= limit else torch.split(words, limit)
        elif size:
            rest = _bytes(tensor)
            while held + rest.numel() >= 8 * limit:
                yield _together([*small, rest[: 8 * limit - held]])
                rest, small, held = rest[8 * limit - held :], [], 0
            small.append(rest)
            held += rest.numel()
    if held:
        yield _together(small)


def _together(pieces: Sequence[Tensor]) -> Tensor:
    data = torch.cat(list(pieces))
    if data.numel() % 8:
        data = torch.cat([data, data.new_zeros(8 - data.numel() % 8)])
    return data.view(torch.int64)


_FOR_WORDS, _FOR_CHUNKS = 0x5EED, 0xC4A9
"""Streams that the factors are drawn from: a chunk's must not equal one of its words'."""


@cache
def _factors(device: torch.device, count: int, stream: int) -> Tensor:
    """Return fixed odd numbers, shape (count,), drawn from a stream of their own."""
    generator = torch.Generator().manual_seed(stream)
    numbers = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator)
    return (numbers | 1).to(device)
