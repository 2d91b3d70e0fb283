"""Looking at the numbers in a tensor: is one not finite, and which samples does it belong to.

Asking is cheap: a sum is finite only if every term is, so one pass suffices while all is well. Only
a sum that is not finite (which large finite terms can make as well) is looked into.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from stabexp.instruments.reasons import Numbers

_SUMMED = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.complex64: torch.complex64,
    torch.complex128: torch.complex128,
}
_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


@dataclass(frozen=True)
class Bad:
    """Which kinds of non-finite numbers a tensor, or a Python number, holds."""

    nan: bool = False
    positive: bool = False
    """Holds +inf."""
    negative: bool = False
    """Holds -inf."""

    def __bool__(self) -> bool:
        return self.nan or self.positive or self.negative

    def __or__(self, other: Bad) -> Bad:
        return Bad(
            self.nan or other.nan, self.positive or other.positive, self.negative or other.negative
        )


FINE = Bad()


def readable(value: Any) -> bool:
    """Return whether `value` is a plain tensor of floating-point numbers."""
    return (
        type(value) in _PLAIN
        and value.dtype in _SUMMED
        and value.layout is torch.strided
        and value.device.type != "meta"
    )


def is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers of a readable tensor are finite."""
    total = tensor.sum(dtype=_SUMMED[tensor.dtype]).item()
    return total - total == 0 or bool(torch.isfinite(tensor).all())


def look(tensor: Tensor) -> Bad:
    """Return which kinds of non-finite numbers a readable tensor holds."""
    if is_finite(tensor):
        return FINE
    if tensor.is_complex():
        return look(torch.view_as_real(tensor.resolve_conj()))
    return Bad(
        bool(torch.isnan(tensor).any()),
        bool(torch.isposinf(tensor).any()),
        bool(torch.isneginf(tensor).any()),
    )


def look_at_number(number: float) -> Bad:
    """Return the same for a Python number."""
    infinite = math.isinf(number)
    return Bad(math.isnan(number), infinite and number > 0, infinite and number < 0)


def summary(tensor: Tensor) -> Numbers:
    """Return what the numbers of a tensor are like."""
    kind = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    if not readable(tensor) or tensor.is_complex():
        return Numbers(dtype=kind, shape=shape, floating=False)
    finite = tensor[torch.isfinite(tensor)].double()
    return Numbers(
        dtype=kind,
        shape=shape,
        smallest=finite.min().item() if finite.numel() else None,
        largest=finite.max().item() if finite.numel() else None,
        zeros=int((finite == 0).sum()),
        negatives=int((finite < 0).sum()),
        infinities=int(torch.isinf(tensor).sum()),
        nans=int(torch.isnan(tensor).sum()),
    )


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def memory(tensor: Tensor) -> StorageWeakRef:
    """Return what identifies a tensor's memory, also after it was freed: no address comes twice."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def fills_memory(tensor: Tensor) -> bool:
    """Return whether the tensor covers all of its memory."""
    return tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()


def rows_affected(tensors: Sequence[Tensor], batch: int) -> tuple[int, ...] | None:
    """Return which rows along the batch dimension hold non-finite numbers; None if that is unclear.

    Args:
        tensors: The tensors to look at; the first with a batch dimension is taken.
        batch: Samples in the batch.
    """
    for tensor in tensors:
        if batch < 1 or not readable(tensor) or tensor.dim() == 0:
            continue
        bad = ~torch.isfinite(tensor)
        matching = [axis for axis, size in enumerate(tensor.shape) if size == batch]
        if matching and (matching[0] == 0 or len(matching) == 1):
            rows = bad.transpose(0, matching[0]).reshape(batch, -1).any(1)
        elif batch > 1 and tensor.shape[0] and tensor.shape[0] % batch == 0:  # samples × positions
            rows = bad.reshape(batch, -1).any(1)
        else:
            continue
        return tuple(rows.nonzero().flatten().tolist())
    return None
