"""A forecast: what grows, how fast, and when it will be too much if it goes on like this."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from stabexp.prediction.trace import Trace

Kind = Literal[
    "rate_ramp",
    "attention_growth",
    "logit_drift",
    "half_headroom",
    "weight_growth",
    "edge_of_stability",
]
"""What is about to go wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A crash that is coming, as far as the trend of one indicator tells."""

    kind: Kind
    step: int
    """The step after which it was made."""
    indicator: str
    """What grows: a recorded quantity, or a layer's weight norm."""
    value: float
    """Its level now."""
    usual: float
    """Its level in the run's healthy window."""
    factor: float
    """What it is multiplied by in one step."""
    limit: float
    """The level that is expected to break the run."""
    crash: int
    """The step at which it reaches the limit if it goes on like this."""

    @property
    def message(self) -> str:
        """One sentence with the figures."""
        percent = 100 * (self.factor - 1)
        return (
            f"{TITLES[self.kind]}: {self.indicator} is {self.value:.4g} (usual {self.usual:.4g}) "
            f"and grows by {percent:.2g} % a step; at step {self.crash} it reaches {self.limit:.4g}"
        )

    def figures(self) -> dict[str, Any]:
        """Return its fields as JSON-ready values."""
        return asdict(self)


TITLES: dict[Kind, str] = {
    "rate_ramp": "the learning rate climbs beyond what this run has lived with",
    "attention_growth": "attention scores grow",
    "logit_drift": "logits grow",
    "half_headroom": "activations approach the largest half-precision number",
    "weight_growth": "weights grow by a factor per step",
    "edge_of_stability": "updates overshoot: gradients swell from step to step",
}
"""Kind → what it means."""

Rule = Callable[[Trace], Forecast | None]
"""Looks at the trace after every step; None while nothing is wrong or too little is known."""


def forecast(
    trace: Trace,
    kind: Kind,
    indicator: str,
    *,
    value: float,
    usual: float,
    rate: float,
    limit: float,
) -> Forecast:
    """Return the forecast for something that grows by exp(`rate`) a step towards `limit`."""
    ahead = math.log(limit / value) / rate if 0 < value < limit and rate > 0 else 0.0
    return Forecast(
        kind=kind,
        step=trace.step,
        indicator=indicator,
        value=value,
        usual=usual,
        factor=math.exp(min(rate, 50.0)),
        limit=limit,
        crash=trace.step + 1 + math.ceil(min(ahead, 1e6)),
    )
