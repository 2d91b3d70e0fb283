"""What can be done with a batch of any form: tensors, or tuples, lists and dicts of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stabexp.errors import NotReplayableError
from stabexp.state.plain_values import leaves

END = object()
"""What is read when no batch is left."""


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch, tuples, lists and dicts included, with its tensors on `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(value, device) for value in batch)
    return batch


def content(batch: Any) -> str:
    """Return a digest of all that a batch holds."""
    digest = hashlib.sha256()
    for _, leaf in leaves(batch):
        if isinstance(leaf, Tensor):
            data = leaf.detach().cpu().contiguous()
            digest.update(f"{data.dtype}{tuple(data.shape)}".encode())
            digest.update(data.reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()


def joined(batches: list[Any]) -> Any:
    """Return several batches as one, sample after sample.

    Raises:
        NotReplayableError: If their tensors do not fit together.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor):
        try:
            return torch.cat(batches)
        except RuntimeError as error:
            raise NotReplayableError(f"batches of a stream cannot be joined: {error}") from error
    if isinstance(first, Mapping):
        return {key: joined([batch[key] for batch in batches]) for key in first}
    if isinstance(first, (list, tuple)) and first and isinstance(first[0], (Tensor, list, tuple)):
        parts = [joined(list(part)) for part in zip(*batches, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return first


def batch_length(batch: Any) -> int:
    """Return the first dimension of the first tensor in a batch, 0 when there is none."""
    if isinstance(batch, Tensor):
        return int(batch.shape[0]) if batch.dim() else 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((size for item in batch if (size := batch_length(item))), 0)
    return 0
