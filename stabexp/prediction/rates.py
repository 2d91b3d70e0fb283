"""A learning rate that climbs beyond all the run has lived with, while the loss gains nothing.

A warmup climbs too. But it climbs in a straight line, so that it soon lies less than twice above
what it was forty steps ago, and the loss falls. A schedule that has gone wrong climbs on.
"""

from __future__ import annotations

from stabexp.prediction.base import Forecast, forecast
from stabexp.prediction.trace import PAST, Trace
from stabexp.prediction.trend import growth, middle

RISEN = 2.0
"""How many times above every rate of more than `PAST` steps ago it must be."""
RECENT = 15
"""Steps over which it must have climbed."""
CLIMBED = 0.08
"""How much it must have climbed in them, in logarithms."""
YOUNG = 90
"""Steps before which a rate that climbs is a warmup."""
GAIN = 0.04
"""The share of the loss that a rate so much higher would gain if it did good."""
BROKEN = 10.0
"""A rate of this many times the highest known one is expected to break the run."""


def rate_ramp(trace: Trace) -> Forecast | None:
    """Return a forecast if the rate has doubled, climbs on, and the loss gains nothing by it."""
    rates = trace.values["lr"]
    known = trace.known.get("lr", 0.0)
    if trace.steps < YOUNG or not rates[-1] >= RISEN * known > 0:
        return None
    now = growth(rates[-RECENT:])
    if now is None or now.total < CLIMBED * 2 / 3 or now.second <= 0 or now.first <= 0:
        return None
    recent = middle(trace.last("loss", RECENT))
    before = middle(trace.last("loss", RECENT, skip=RECENT))
    if recent is not None and before is not None and recent < (1 - GAIN) * before:
        return None
    return forecast(
        trace,
        "rate_ramp",
        "the learning rate",
        value=rates[-1],
        usual=known,
        rate=now.rate,
        limit=BROKEN * known,
    )


assert PAST > RECENT
