"""Which number format a loop's autocast regions have is seen, and can be changed in a replay.

Loops of others enter `torch.autocast` themselves: a user's own, Accelerate's around the forward
pass, Lightning's precision plug-ins. All of them enter the same class. Compiled code keeps the
regions that it was compiled with: a replay in a process of its own compiles them as changed, and
where they were compiled before, no change takes hold, which `acted` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stabexp.training.precision import NumberFormat


class AutocastWatch:
    """Watches every autocast region of this process until `remove`."""

    def __init__(self, instead: NumberFormat | None = None) -> None:
        """`instead` is the format to use in place of the loop's own; None changes nothing."""
        self.seen: torch.dtype | None = None
        """The data type of the last enabled region on any device, as the loop asked for it."""
        self.acted = False
        """Whether a region was changed."""
        self._inner: Callable[[Any], Any] = torch.autocast.__enter__
        watch, inner = self, self._inner

        def enter(region: Any) -> Any:
            if watch._on and region._enabled:
                watch.seen = region.fast_dtype
                if instead is not None:
                    watch.acted = True
                    own = region._enabled, region.fast_dtype
                    region._enabled = instead.autocast is not None
                    region.fast_dtype = instead.autocast or region.fast_dtype
                    try:
                        return inner(region)  # type: ignore[no-untyped-call]
                    finally:  # the object may be entered again, and belongs to the loop
                        region._enabled, region.fast_dtype = own
            return inner(region)  # type: ignore[no-untyped-call]

        self._ours = enter
        self._on = True
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]

    def remove(self) -> None:
        """Put torch's method back; somebody who wrapped ours keeps it, and it does nothing."""
        self._on = False
        if torch.autocast.__enter__ is self._ours:
            torch.autocast.__enter__ = self._inner  # type: ignore[method-assign]
