"""How something grows: the factor per step, measured on medians so that single steps do not matter.

A series is cut into thirds. It grows steadily when each third lies above the one before by nearly
the same factor; what healthy training does by itself slows down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Exponential growth over a window."""

    rate: float
    """Natural logarithm of the factor per step."""
    first: float
    """Logarithm of the factor from the first third to the second."""
    second: float
    """Logarithm of the factor from the second third to the last."""
    level: float
    """Median of the last third."""

    @property
    def total(self) -> float:
        """Logarithm of the factor from the first third to the last."""
        return self.first + self.second

    def steady(self, share: float = 0.6) -> bool:
        """Return whether it grew in both halves, and in the second at least `share` as fast."""
        return self.first > 0 and self.second >= share * self.first

    def steps_to(self, limit: float) -> float:
        """Return after how many steps the level reaches `limit`; 0 when it has, inf for never."""
        if self.level >= limit:
            return 0.0
        return math.log(limit / self.level) / self.rate if self.rate > 0 else math.inf


def growth(values: Sequence[float]) -> Growth | None:
    """Return how the values grow, None where a third has no positive finite value."""
    third = len(values) // 3
    if third == 0:
        return None
    start = len(values) - 3 * third
    levels = []
    for index in range(3):
        level = middle(values[start + index * third : start + (index + 1) * third])
        if level is None or level <= 0:
            return None
        levels.append(level)
    first, second = math.log(levels[1] / levels[0]), math.log(levels[2] / levels[1])
    rate = (first + second) / (2 * third)
    return Growth(rate=rate, first=first, second=second, level=levels[2])


def middle(values: Iterable[float]) -> float | None:
    """Return the median of the finite values, None without any."""
    known = [value for value in values if value - value == 0]
    return median(known) if known else None


def highest(values: Sequence[float]) -> float:
    """Return the largest finite value, 0.0 without any."""
    return max((value for value in values if value - value == 0), default=0.0)
