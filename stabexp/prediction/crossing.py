"""When a loss really left: the first of three steps above one and a half times its healthy median.

An onset that asks no detector, so that a lead time can be measured against it. The healthy median
is the lowest that 25 losses in a row have had so far.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from stabexp.prediction.trend import middle

MEDIAN_OF = 25
"""Losses whose median is a level."""
YOUNG = 45
"""Steps before which no level counts as healthy."""
ABOVE = 1.5
IN_A_ROW = 3


def crossing(losses: Iterable[float], *, since: int = 0) -> int | None:
    """Return the index of the first loss of those that left, None when the loss never did.

    A loss that is not a number is above everything.

    Args:
        losses: One per step, from the first.
        since: Index before which nothing counts.
    """
    recent: deque[float] = deque(maxlen=MEDIAN_OF)
    floor, above = math.inf, 0
    for index, loss in enumerate(losses):
        if len(recent) == MEDIAN_OF and (level := middle(recent)) is not None:
            floor = min(floor, level)
        counts = index >= max(since, YOUNG)
        above = above + 1 if counts and not loss <= ABOVE * floor else 0
        if above == IN_A_ROW:
            return index - IN_A_ROW + 1
        recent.append(loss)
    return None
