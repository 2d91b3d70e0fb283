"""Random numbers that are drawn while data is read, kept apart from those that the training draws.

A place in the data is reached by reading up to it once more, without training in between. That is
exact as long as reading has the random streams for itself. A sampler or a stream that draws a few
numbers per batch from the global streams shares them with dropout: then the streams before each of
its draws are state, and reading again starts each draw from where it started the first time.

Worker processes have streams of their own, which only reading in order brings to the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import get_worker_info

from stabexp.state.random_streams import as_state, host_streams, restore_streams

KEPT = 512
"""Reads of one pass whose streams are kept, 13 kB each."""

_Batch = TypeVar("_Batch")
_End = TypeVar("_End")
_Streams = tuple[Any, Any, Any]


class Draws:
    """The reads of one pass, in order, each from the streams that it had the first time."""

    def __init__(
        self,
        kept: MutableMapping[int, Any],
        *,
        shares: bool,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Go on with what is kept of this pass; it is added to.

        Args:
            kept: Number of the read in its pass → the streams before it.
            shares: Whether reads after the first may draw from the global streams at all.
            on_lost: Called when there are more than `KEPT`.
        """
        self._kept = kept
        self._shares = shares
        self._on_lost = on_lost
        self._number = 0
        self.after: _Streams | None = None
        """The streams as the last read left them; None where nobody looked."""

    def read(self, batches: Iterator[_Batch], end: _End) -> _Batch | _End:
        """Return the next of `batches`, `end` when there is none."""
        number, self._number = self._number, self._number + 1
        if number in self._kept:
            restore_streams(self._kept[number])
        elif number and not self._shares:
            self.after = None
            return next(batches, end)
        before = host_streams()
        found = next(batches, end)
        last, self.after = self.after, host_streams()
        # The first read of a pass may come after workers were started, which draws a number too.
        shared = last is not None and moved(last, before) and moved(before, self.after)
        if number not in self._kept and (shared or number == 0):
            if len(self._kept) < KEPT:
                self._kept[number] = as_state(before)
            else:
                self._on_lost()
        return found


def moved(before: _Streams, after: _Streams) -> bool:
    """Whether any of the streams is at another place."""
    if not torch.equal(before[2], after[2]) or before[0] != after[0]:
        return True
    one, other = before[1], after[1]
    if (one["has_gauss"], one["gauss"]) != (other["has_gauss"], other["gauss"]):
        return True
    return one["state"]["pos"] != other["state"]["pos"] or not np.array_equal(
        one["state"]["key"], other["state"]["key"]
    )


class WatchedCollate:
    """Collates as a loader did before, and notices worker processes that draw random numbers."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._drew = torch.zeros((), dtype=torch.bool)
        self._drew.share_memory_()  # type: ignore[no-untyped-call]
        self._last: _Streams | None = None

    @property
    def drew(self) -> bool:
        """Whether some worker drew random numbers while it read or collated."""
        return bool(self._drew)

    def __call__(self, samples: Any) -> Any:
        if get_worker_info() is not None and not self._drew:
            now = host_streams()
            if self._last is not None and moved(self._last, now):
                self._drew.fill_(True)
            self._last = now
        return self._inner(samples)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is being copied
            raise AttributeError(name)
        return getattr(self._inner, name)
