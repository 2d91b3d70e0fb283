"""A dataset that is a table of tensors in memory: row i of each tensor is sample i."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


class InMemory:
    """Samples as rows of one or more tensors of equal length."""

    def __init__(self, *columns: Tensor) -> None:
        if not columns or len({len(column) for column in columns}) != 1:
            lengths = [len(column) for column in columns]
            raise ValueError(f"columns of one length are needed, found lengths {lengths}")
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        # Copies: a sample changed in place must not come back changed in the next pass.
        return tuple(column[index].clone() for column in self._columns)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the rows at `indices`, in that order: one tensor (len(indices), …) per column."""
        rows = torch.as_tensor(indices, dtype=torch.long)
        return tuple(column[rows] for column in self._columns)

    def digest(self) -> str:
        """Return a sha256 over the dtype, shape and bits of every column."""
        digest = hashlib.sha256()
        for column in self._columns:
            digest.update(f"{column.dtype}{tuple(column.shape)}".encode())
            digest.update(column.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()
