"""The worker processes of a loader end with the run that used them.

Left to the garbage collector, each of them takes five seconds: a loader with persistent workers, or
one of torchdata's, holds its iterator in a cycle, and by the time the collector gets to it the
queue through which a worker is told to end is closed already. So every replay of a bisect would
wait for the workers of the one before it.
"""

from __future__ import annotations

from typing import Any


def end_workers(loader: Any, batches: Any) -> None:
    """End the workers behind an iterator over a loader; the next pass starts new ones."""
    holder = getattr(loader, "base_dataloader", loader)  # Accelerate wraps the loader itself
    for iterator in (batches, getattr(holder, "_iterator", None)):
        # torch has no public name for it.
        end = getattr(iterator, "_shutdown_workers", None)
        if end is not None:
            end()
            if getattr(holder, "persistent_workers", False):
                holder._iterator = None
