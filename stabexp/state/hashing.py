"""Two states are equal when their hashes are: bit for bit, whatever file or layout they came in.

`state_hash` is for checkpoints: cryptographic, over everything. `parameter_digest` is for every
step: one number on the parameters' own device, that nothing has to wait for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
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


_WORDS = 1 << 20
"""8-byte words taken at once: bounds the working memory to 8 MiB, and to 16 MiB on a GPU."""


@torch.no_grad()
def parameter_digest(tensors: Iterable[Tensor]) -> Tensor:
    """Return a number over the bits of all tensors in order: 0-d, int64, on their device.

    Their bytes are read as 64-bit words and added up, each times an odd number of its own, modulo
    2**64. An odd factor has an inverse, so a flipped bit always shows; swapped words or tensors,
    and changes that would cancel in a plain sum, show but for one case in billions. Nothing waits
    for the device. Memory layout makes no difference.

    Args:
        tensors: Dense, of any dtypes and shapes. Spread over devices, the first one's is used.
    """
    groups: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(_bytes(tensor))
    sums = [
        _weighted(torch.cat(chunk), device)
        for device, pieces in groups.items()
        for chunk in _chunks(pieces, 8 * _WORDS)
    ]
    if not sums:
        return torch.zeros((), dtype=torch.int64)
    first = sums[0].device
    total = sums[0]
    if len(sums) > 1:
        stacked = torch.stack([part.to(first, non_blocking=True) for part in sums])
        # From the far end, so that no chunk's factor equals that of its words.
        total = (stacked * _factors(first).flip(0)[: len(sums)]).sum()
    return total


def _weighted(data: Tensor, device: torch.device) -> Tensor:
    if data.numel() % 8:
        data = torch.cat([data, data.new_zeros(8 - data.numel() % 8)])
    words = data.view(torch.int64)
    # A product keeps nothing of the factor beyond the sign bit it is multiplied with: two flipped
    # signs would cancel. So the high bits are added to the low ones first.
    words += words >> 40
    factors = _factors(device)[: words.numel()]
    # CUDA has no integer dot product; on a CPU it saves writing the products to memory.
    return torch.dot(words, factors) if device.type == "cpu" else (words * factors).sum()


def _chunks(pieces: Iterable[Tensor], limit: int) -> Iterator[list[Tensor]]:
    """Yield the bytes in order, in lists of `limit` bytes in all, the last one shorter."""
    chunk: list[Tensor] = []
    room = limit
    for piece in pieces:
        rest = piece
        while rest.numel() >= room:
            yield [*chunk, rest[:room]]
            rest, chunk, room = rest[room:], [], limit
        if rest.numel():
            chunk.append(rest)
            room -= rest.numel()
    if chunk:
        yield chunk


@cache
def _factors(device: torch.device) -> Tensor:
    """Return the fixed odd numbers, shape (_WORDS,), drawn from a stream of their own."""
    generator = torch.Generator().manual_seed(0x5EED)
    numbers = torch.randint(-(2**63), 2**63 - 1, (_WORDS,), generator=generator)
    return (numbers | 1).to(device)
