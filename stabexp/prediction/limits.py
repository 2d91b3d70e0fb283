"""Levels with a known limit: float16's largest number, and scores at which a softmax is one-hot.

The logarithm of the level is extended in a straight line. How near it is does not matter as long
as it stays there.
"""

from __future__ import annotations

from dataclasses import dataclass

from stabexp.prediction.base import Forecast, Kind, forecast
from stabexp.prediction.trace import Trace
from stabexp.prediction.trend import growth, middle

WINDOW = 30
"""Steps over which the growth is measured."""
YOUNG = 70
"""Steps before which activations grow by learning."""
HORIZON = 60
"""A limit that is further away than this many steps is not warned of."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A quantity that must not reach a level."""

    kind: Kind
    quantity: str
    indicator: str
    limit: float
    from_level: float
    """Below this level it grows as healthy training makes it grow."""

    def __call__(self, trace: Trace) -> Forecast | None:
        """Return a forecast if the level will be reached within the horizon."""
        values = trace.last(self.quantity, WINDOW)
        if trace.steps < YOUNG or not values[-1] >= self.from_level:
            return None
        found = growth(values)
        if found is None or found.level < self.from_level or not found.steady():
            return None
        # the median lies a third's half behind the newest value
        if found.steps_to(self.limit) > HORIZON + WINDOW / 6:
            return None
        return forecast(
            trace,
            self.kind,
            self.indicator,
            value=found.level,
            usual=middle(trace.last(self.quantity, WINDOW, skip=WINDOW)) or found.level,
            rate=found.rate,
            limit=self.limit,
        )


half_headroom = Limit(
    kind="half_headroom",
    quantity="activation",
    indicator="the largest activation",
    limit=65504.0,
    from_level=256.0,
)
attention_growth = Limit(
    kind="attention_growth",
    quantity="attention",
    indicator="the largest attention score",
    limit=10_000.0,
    from_level=64.0,
)
logit_drift = Limit(
    kind="logit_drift",
    quantity="logits",
    indicator="the largest logit",
    limit=256.0,
    from_level=48.0,
)
"""bfloat16 holds numbers of 256 to the nearest 2: what the loss is made of is rounded away."""
