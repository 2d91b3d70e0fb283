"""How values become heights in a chart: linear, logarithmic, or logarithmic either side of zero."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stabexp.reporting.words import figure

_ABOVE = 30.0
"""How far above the median an axis looks, as a factor: how high a blow-up went says little, and
every decade shown for it flattens the healthy curves that tell a cure from a stall."""

_BELOW = 1e4
"""How far below the median an axis looks, as a factor: small losses are real."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A monotone map from the values `low` to `high` onto 0 to 1."""

    kind: Literal["linear", "log", "symlog"]
    low: float
    high: float
    unit: float = 1.0
    """symlog only: the size below which values are spaced linearly."""

    def _bend(self, value: float) -> float:
        if self.kind == "log":
            return math.log10(value)
        if self.kind == "symlog":
            return math.copysign(math.log10(1 + abs(value) / self.unit), value)
        return value

    def share(self, value: float) -> float:
        """Return 0 at `low` and 1 at `high`; values beyond them are held there."""
        held = min(max(value, self.low), self.high)
        # Halved before subtracting: the two may be near the ends of what a float holds.
        low, high = self._bend(self.low) / 2, self._bend(self.high) / 2
        return min(max((self._bend(held) / 2 - low) / (high - low), 0.0), 1.0)

    def outside(self, value: float) -> int:
        """Return 1 above the scale, -1 below it, else 0."""
        return (value > self.high) - (value < self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return about `most` values to label, with their labels."""
        most = max(2, most)
        if self.kind == "linear":
            return [(value, figure(value)) for value in step_ticks(self.low, self.high, most)]
        if self.kind == "log":
            return self._log_ticks(most)
        reach = math.log10(max(abs(self.low), abs(self.high)) / self.unit)
        stride = max(1, math.ceil(2 * (reach + 1) / most))
        sizes = [self.unit * 10.0**power for power in range(0, math.floor(reach) + 1, stride)]
        values = [*(-size for size in reversed(sizes)), 0.0, *sizes]
        return [(value, _power(value)) for value in values if self.low <= value <= self.high]

    def _log_ticks(self, most: int) -> list[tuple[float, str]]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        stride = max(1, math.ceil((last - first + 1) / most))
        values = [10.0**power for power in range(first, last + 1, stride)]
        if len(values) <= most // 2:
            between = [m * 10.0**p for p in range(first - 1, last + 1) for m in (2, 5)]
            values = sorted([*values, *(v for v in between if self.low <= v <= self.high)])
        return [(value, _power(value)) for value in values]


def value_scale(values: Sequence[float]) -> Scale:
    """Return the scale that shows the finite ones among `values` best."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return Scale(kind="linear", low=0.0, high=1.0)
    low, high = finite[0], finite[-1]
    sizes = sorted(abs(value) for value in finite if value)
    middle = statistics.median_low(sizes) if sizes else 1.0
    # Below 1e-290 a tenth of a tick is no longer a number a float can hold.
    middle = min(max(middle, 1e-290), 1e290)
    # At the very ends of what a float holds, only a linear axis still works.
    ordinary = high > 1e-280 and low < 1e280
    if low > 0 and ordinary and math.log10(high) - math.log10(low) > 2:
        low = max(low, middle / _BELOW)
        high = min(high, middle * _ABOVE)
        if high / low <= 1.01:
            low, high = low / 2, high * 2
        return Scale(kind="log", low=low / 1.15, high=high * 1.15)
    if low <= 0 and max(abs(low), abs(high)) > 100 * middle:
        reach = middle * _ABOVE
        unit = 10.0 ** math.floor(math.log10(middle))
        return Scale(kind="symlog", low=max(low, -reach), high=min(high, reach), unit=unit)
    pad = (high / 2 - low / 2) * 0.08 or abs(low) / 2 or 1.0
    return Scale(kind="linear", low=max(low - pad, -1.7e308), high=min(high + pad, 1.7e308))


def step_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most about `most` round values from `low` to `high`."""
    width = high / 2 - low / 2
    if not width > 0:
        return [low]
    raw = width / max(1, most) * 2
    if raw < 1e-300 or raw > 1e300:
        return [low, high]
    size = 10.0 ** math.floor(math.log10(raw))
    size *= next(factor for factor in (1, 2, 5, 10) if factor * size >= raw * 0.999)
    first, last = math.ceil(low / size), math.floor(high / size)
    if last - first > 4 * most:  # so narrow a range around so large a number that rounding rules
        return [low, high]
    return [float(f"{index * size:.12g}") for index in range(first, last + 1)]


def _power(value: float) -> str:
    size = abs(value)
    if size and not 1e-3 <= size < 1e4:
        mantissa, _, exponent = f"{value:.0e}".partition("e")
        power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
        return (
            power if mantissa == "1" else f"-{power}" if mantissa == "-1" else f"{mantissa}·{power}"
        )
    return figure(value)
