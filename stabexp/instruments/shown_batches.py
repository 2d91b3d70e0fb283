"""A few rows of every batch of a stream, kept to be shown: nothing else could be asked for them.

A dataset can be read again, sample by sample. A stream cannot, so what a replay is handed is kept
while it goes by: the first rows of a batch, and the one whose values are out of proportion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, PrivateAttr
from torch import Tensor

from stabexp.instruments.base import Instrument, Watched
from stabexp.state.plain_values import leaves

ROWS = 3
"""Rows of a batch that are kept."""
APART = 10.0
"""Times the usual row from which one is kept in place of a first one."""
BYTES = 64 << 20
"""Memory for all that is kept."""
OLDEST = 8
"""Batches from the start of a replay that are kept, to compare with."""


class FewRows(Mapping[str, Any]):
    """Some rows of a batch by name, "row 11"; `batch` is a batch of just these."""

    def __init__(self, batch: Any, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        self.batch = _taken(batch, list(rows))

    def __getitem__(self, name: str) -> Any:
        place = [f"row {row}" for row in self.rows].index(name)
        return _row(self.batch, place)

    def __iter__(self) -> Iterator[str]:
        return (f"row {row}" for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class ShownBatches(Instrument):
    """Keeps a few rows of the batches of a stream, by the number of the batch."""

    latest: bool = False
    """Whether the last batches matter more than the first, when there is no room for all."""

    limit: int = Field(BYTES, gt=0)
    """Bytes to keep at most."""

    _kept: dict[int, FewRows] = PrivateAttr(default_factory=dict)
    _streams: bool = PrivateAttr(default=False)
    _used: int = PrivateAttr(default=0)

    @property
    def kept(self) -> Mapping[int, FewRows]:
        """What was kept, by the number of the batch; empty for a dataset with an index."""
        return self._kept

    def attach(self, watched: Watched) -> None:
        self._streams = watched.dataset_size is None

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        if not self._streams or len(ids) != 1 or ids[0] in self._kept:
            return
        rows = telling_rows(batch)
        if not rows:
            return
        few = FewRows(batch, rows)
        size = _bytes(few.batch)
        if self._used + size > self.limit and not self.latest:
            return
        self._kept[ids[0]] = few
        self._used += size
        while self._used > self.limit and len(self._kept) > OLDEST + 1:
            self._used -= _bytes(self._kept.pop(list(self._kept)[OLDEST]).batch)


def telling_rows(batch: Any) -> tuple[int, ...]:
    """Return which rows of a batch to show: one out of proportion first, and the first ones."""
    tensors = [
        leaf.detach() for _, leaf in leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()
    ]
    if not tensors:
        return ()
    count = len(tensors[0])
    worst = [_worst(tensor) for tensor in tensors if len(tensor) == count and count > 1]
    apart = [row for share, row in sorted(worst, reverse=True) if share > APART][:1]
    return tuple(dict.fromkeys([*apart, *range(count)]))[:ROWS]


def _worst(tensor: Tensor) -> tuple[float, int]:
    """Return by how much the row of the largest values is above the usual row, and which it is."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0.0, 0
    sizes = tensor.reshape(len(tensor), -1).abs().amax(1).nan_to_num(math.inf).double().cpu()
    row = int(sizes.argmax())
    usual = float(sizes.median())
    return (float(sizes[row]) / usual if 0 < usual < math.inf else 0.0), row


def _taken(batch: Any, rows: list[int]) -> Any:
    if isinstance(batch, Tensor):
        fits = batch.dim() and len(batch) > max(rows)
        return (batch[rows] if fits else batch).detach().cpu().clone()
    if isinstance(batch, Mapping):
        return {key: _taken(value, rows) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_taken(value, rows) for value in batch))
    if isinstance(batch, (list, tuple)):
        if any(isinstance(value, (Tensor, Mapping, list, tuple)) for value in batch):
            return type(batch)(_taken(value, rows) for value in batch)
        return [batch[row] for row in rows] if len(batch) > max(rows) else batch
    return batch


def _row(batch: Any, place: int) -> Any:
    if isinstance(batch, Tensor):
        return batch[place] if batch.dim() and len(batch) > place else batch
    if isinstance(batch, Mapping):
        return {key: _row(value, place) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        if any(isinstance(value, (Tensor, Mapping, list, tuple)) for value in batch):
            return [_row(value, place) for value in batch]
        return batch[place] if len(batch) > place else batch
    return batch


def _bytes(batch: Any) -> int:
    tensors = (leaf for _, leaf in leaves(batch) if isinstance(leaf, Tensor))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
