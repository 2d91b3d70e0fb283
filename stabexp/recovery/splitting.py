"""Smaller micro-batches with the same samples per update: what to do when memory runs out.

The documents lower the batch size. That changes the training; the same samples in smaller parts
change nothing but the order of a sum. Source row A14.
"""

from __future__ import annotations


def split_batch(size: int, accumulate: int, *, times: int = 1) -> tuple[int, int] | None:
    """Return the size and number of smaller micro-batches, None when they cannot be smaller.

    Args:
        size: Samples per micro-batch.
        accumulate: Micro-batches per update; size × accumulate stays what it is.
        times: How often memory has run out: each time a micro-batch becomes at most half as large.
    """
    for _ in range(times):
        if size <= 1:
            return None
        part = next(part for part in range(2, size + 1) if size % part == 0)
        size, accumulate = size // part, accumulate * part
    return size, accumulate
