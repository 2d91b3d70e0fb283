"""Weights that grow by a factor per step, which no healthy training does for long.

Norms of weights grow fast at first and then ever more slowly. So the growth is compared with the
slowest the run has shown at a rate no lower than today's; what accelerates is not learning. Where
norms of layers are recorded, one layer that grows alone is seen too.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

from stabexp.prediction.base import Forecast, Kind, forecast
from stabexp.prediction.trace import PAST, WINDOW, Trace
from stabexp.prediction.trend import growth, middle

RECENT = 30
"""Steps over which the growth is measured."""
BLOCK = 15
"""Steps over which the run's slowest growth was."""
FASTER = 0.004
"""How much faster than that it must be: the share of the norm added in a step."""
LAYER_FASTER = 0.005
"""The same for a single layer."""
YOUNG = 120
"""Steps before which no growth is known to be slow."""
GROWN_UP = 160
"""Steps before which they may still grow fast while the loss improves."""
GAINING = 25
"""Steps whose loss is compared with that of as many before."""
GAIN = 0.03
"""The share of the loss by which it must fall to count as improving."""
GAINS = 2.0
"""How many times faster weights must grow while the loss improves."""
MOSTLY = 0.7
"""Share of the growth that one kind of layer must make to be named."""
ATTENTION = re.compile(r"qkv|[qk]_proj|query|key|in_proj|c_attn")
"""Names of layers that make attention scores."""
HEAD = re.compile(r"(^|\.)(lm_head|head|classifier|score|logits|fc_out|output)$")
"""Names of layers that make logits, wherever the optimizer holds them."""
BROKEN = 4.0
"""A norm of this many times the usual one is expected to break the run."""


def weight_growth(trace: Trace) -> Forecast | None:
    """Return a forecast if all weights together, or one layer's, grow steadily and ever faster."""
    if trace.steps < YOUNG:
        return None
    gains = improves(trace)
    if gains and trace.steps < GROWN_UP:
        return None
    return _whole(trace, gains) or _layer(trace, gains)


def improves(trace: Trace) -> bool:
    """Return whether the loss falls as it does in training that goes well."""
    recent, before = trace.last("loss", GAINING), trace.last("loss", GAINING, skip=GAINING)
    now, then = middle(recent), middle(before)
    return now is not None and then is not None and now < (1 - GAIN) * then


def _whole(trace: Trace, gains: bool) -> Forecast | None:
    norms = trace.values["param_norm"]
    now = growth(norms[-RECENT:])
    faster = FASTER * (GAINS if gains else 1.0)
    if now is None or now.rate < faster or not now.steady(0.8):
        return None
    calm = slowest(trace)
    if calm is None or now.rate < calm + faster:
        return None
    usual = middle(norms[-RECENT - PAST : -RECENT]) or now.level
    return forecast(
        trace,
        _driver(trace),
        "the norm of all weights",
        value=now.level,
        usual=usual,
        rate=now.rate,
        limit=BROKEN * usual,
    )


def slowest(trace: Trace) -> float | None:
    """Return the slowest growth before, per step, at a rate not much lower than the newest."""
    norms, rates = trace.values["param_norm"], trace.values["lr"]
    found = []
    for end in range(len(norms) - RECENT, BLOCK, -BLOCK):
        before, after = norms[end - BLOCK], norms[end - 1]
        # "not below" also holds where a log has no rate
        comparable = not min(rates[end - 1], rates[end - BLOCK]) * 1.5 < rates[-1]
        if comparable and 0 < before < math.inf and 0 < after < math.inf:
            found.append(math.log(after / before) / (BLOCK - 1))
    return min(found, default=None)


def _layer(trace: Trace, gains: bool) -> Forecast | None:
    rates = trace.values["lr"]
    faster = LAYER_FASTER * (GAINS if gains else 1.0)
    for layer, norms in trace.layers.items():
        if norms[-1][0] != trace.step or len(norms) < 7:
            continue
        steps = [
            (math.log(after / before) / (step - earlier), earlier)
            for (earlier, before), (step, after) in pairwise(norms)
            if 0 < before < math.inf and 0 < after < math.inf and step > earlier
        ]
        if len(steps) < 6:
            continue
        growths = [rate for rate, _ in steps]
        last = growths[-3:]
        if min(last) < faster or last[-1] < 0.9 * max(last):
            continue
        calm = []
        for rate, since in steps[:-3]:
            index = since - trace.step - 1
            if -len(rates) <= index and not rates[index] * 1.5 < rates[-1]:
                calm.append(rate)
        if not calm or min(last) < max(min(calm), 0.0) + faster:
            continue
        level, usual = norms[-1][1], norms[-4][1]
        return forecast(
            trace,
            _kind(layer, last=_last(trace)),
            f"the weight norm of {layer}",
            value=level,
            usual=usual,
            rate=sum(last) / 3,
            limit=BROKEN * usual,
        )
    return None


def _kind(layer: str, *, last: str) -> Kind:
    """Return what the growth of one layer alone means; `last` is the model's last layer."""
    if ATTENTION.search(layer):
        return "attention_growth"
    return "logit_drift" if layer == last or HEAD.search(layer) else "weight_growth"


def _driver(trace: Trace) -> Kind:
    """Return what it means that all weights grow: most often one kind of layer does."""
    last = _last(trace)
    added: dict[Kind, float] = {}
    for layer, norms in trace.layers.items():
        if len(norms) >= 3:
            kind = _kind(layer, last=last)
            added[kind] = added.get(kind, 0.0) + norms[-1][1] ** 2 - norms[-3][1] ** 2
    total = sum(added.values())
    for kind, share in added.items():
        if share > MOSTLY * total > 0:
            return kind
    return "weight_growth"


def _last(trace: Trace) -> str:
    """Return the layer that makes the output: the highest number, where all are numbered."""
    if all(layer.isdecimal() for layer in trace.layers):
        return max(trace.layers, key=int, default="")
    return next(reversed(trace.layers), "")


assert WINDOW >= RECENT + PAST
