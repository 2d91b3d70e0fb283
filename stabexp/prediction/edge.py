"""Updates that overshoot: the gradient's norm swells over a few steps, before the loss shows it.

Beyond the edge of stability what lies in the sharpest direction grows by a factor at every step.
The loss feels its square, so the gradient shows it first. Often such a swell dies down by itself
and the loss comes back; the next one, or the one after it, does not.

Where losses are smooth (one batch, or large ones) a fourfold norm is far outside of noise. Where
they are noisy only a rise in every single step is, and it must be large for the noise there was.

Source: Cohen et al. 2021, "Gradient Descent on Neural Networks Typically Occurs at the Edge of
Stability".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from stabexp.detectors.robust import centre_and_spread
from stabexp.prediction.base import Forecast, forecast
from stabexp.prediction.trace import Trace

BEFORE = 40
"""Steps that say what is usual."""
SMOOTH = 0.02
"""How much a smooth loss bends at a step at most, as a share of it."""
RISE = 12
"""Steps in which a smooth norm swells."""
FOURFOLD = math.log(4)
"""By how much, in logarithms."""
SWELL = 5
"""Steps in which a noisy norm swells, without one that does not."""
SWELLED = 1.0
"""By how much, in logarithms."""
SIGMAS = 6.0
"""How far above the steps before it ends, in their robust deviations."""
LEAST, MOST = 0.05, 0.6
"""What each of these steps adds at least, in logarithms, and at most, as a share of all."""
BROKEN = math.e**3
"""A norm of this many times the usual one is expected to break the run."""


def edge_of_stability(trace: Trace) -> Forecast | None:
    """Return a forecast if the gradient's norm swells."""
    norms = trace.last("grad_norm", BEFORE + SWELL + 1)
    if len(norms) < BEFORE + SWELL + 1 or norms[-1] < 2 * norms[-RISE]:
        return None  # the usual case ends here
    if not all(0 < norm < math.inf for norm in norms):
        return None
    logs = [math.log(norm) for norm in norms]
    if is_smooth(trace.last("loss", BEFORE, skip=SWELL + 1)):
        return _swells_smoothly(trace, logs)
    return _swells_through_noise(trace, logs)


def is_smooth(losses: Sequence[float]) -> bool:
    """Return whether the losses bend so little from step to step that noise is no matter."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    return bool(bends) and median(bends) < SMOOTH * abs(median(losses))


def _swells_smoothly(trace: Trace, logs: Sequence[float]) -> Forecast | None:
    middles = [median(logs[i - 2 : i + 1]) for i in range(len(logs) - RISE - 1, len(logs))]
    low = min(middles)
    if middles[-1] - low < FOURFOLD:
        return None
    steps = len(middles) - 1 - middles.index(low)
    return _forecast(trace, now=middles[-1], usual=low, rate=(middles[-1] - low) / steps)


def _swells_through_noise(trace: Trace, logs: Sequence[float]) -> Forecast | None:
    steps = [after - before for before, after in pairwise(logs[-SWELL - 1 :])]
    total = sum(steps)
    if total < SWELLED or min(steps) < LEAST or max(steps) > MOST * total:
        return None
    centre, spread = centre_and_spread(logs[:-SWELL])
    if logs[-1] < centre + max(SIGMAS * spread, SWELLED):
        return None
    return _forecast(trace, now=logs[-1], usual=centre, rate=total / SWELL)


def _forecast(trace: Trace, *, now: float, usual: float, rate: float) -> Forecast:
    return forecast(
        trace,
        "edge_of_stability",
        "the gradient norm",
        value=math.exp(now),
        usual=math.exp(usual),
        rate=rate,
        limit=BROKEN * math.exp(usual),
    )
