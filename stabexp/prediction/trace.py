"""What the latest steps showed, kept short: one number per step and quantity.

The forecaster's whole memory. It is plain numbers, so it goes into a checkpoint, and a replay goes
on from it as the run did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stabexp.records import StepRecord

WINDOW = 120
"""Steps that are kept."""
LAYERS = 8
"""Measurements of each layer's weights that are kept."""
PAST = 40
"""Steps after which a level counts as one that the run has lived with."""
METRICS = {
    "attention": re.compile(r"attention.*(logit|score)"),
    "logits": re.compile(r"(^|/)logits?(/|_)(largest|absmax|max)"),
    "activation": re.compile(r"activation.*absmax"),
}
"""Quantity → metrics that measure it; the largest of several counts."""
LAYER_FIGURES = {"attention_logit": "attention"}
"""The same for what monitors record of each layer."""
QUANTITIES = ("loss", "lr", "grad_norm", "update_ratio", "param_norm", *METRICS)

NAN = float("nan")


class Trace:
    """The latest values of every quantity, NaN where a step did not measure it."""

    def __init__(self) -> None:
        self.step = -1
        """The newest step."""
        self.steps = 0
        """How many steps were seen."""
        self.values: dict[str, list[float]] = {name: [] for name in QUANTITIES}
        self.layers: dict[str, list[tuple[int, float]]] = {}
        """Layer → (step, weight norm), oldest first."""
        self.known: dict[str, float] = {}
        """Quantity → its highest value that is more than `PAST` steps old."""
        self._kinds: dict[str, str] = {}

    def add(self, record: StepRecord) -> None:
        """Take in the next step."""
        self.step = record.step
        self.steps += 1
        row = {
            "loss": record.loss,
            "lr": record.lr,
            "grad_norm": record.grad_norm,
            "update_ratio": NAN if record.skipped else record.update_ratio,
            "param_norm": record.param_norm,
            **self.measured(record),
        }
        for name, series in self.values.items():
            series.append(row.get(name, NAN))
            if len(series) > PAST and (old := series[-1 - PAST]) - old == 0:
                self.known[name] = max(self.known.get(name, old), old)
            if len(series) > WINDOW:
                del series[0]
        for layer, norms in (record.layers or {}).items():
            if (norm := norms.get("weight_norm")) is not None:
                kept = self.layers.setdefault(layer, [])
                kept.append((record.step, norm))
                del kept[:-LAYERS]

    def measured(self, record: StepRecord) -> dict[str, float]:
        """Return by quantity what monitors and the loop measured in a step, the largest of each."""
        found: dict[str, float] = {}
        for name, value in record.metrics.items():
            if kind := self._kind(name):
                found[kind] = max(found.get(kind, value), value)
        for figures in (record.layers or {}).values():
            for name, kind in LAYER_FIGURES.items():
                if name in figures:
                    found[kind] = max(found.get(kind, figures[name]), figures[name])
        if record.loss_scale is None:
            found.pop("activation", None)  # without a scaler this is bfloat16, which holds more
        return found

    def _kind(self, metric: str) -> str:
        if metric not in self._kinds:
            kinds = (kind for kind, pattern in METRICS.items() if pattern.search(metric))
            self._kinds[metric] = next(kinds, "")
        return self._kinds[metric]

    def last(self, name: str, count: int, *, skip: int = 0) -> Sequence[float]:
        """Return the `count` values before the newest `skip`, oldest first; fewer at the start."""
        series = self.values[name]
        end = len(series) - skip
        return series[max(0, end - count) : max(0, end)]

    def state_dict(self) -> dict[str, Any]:
        """Return everything, in plain values."""
        return {
            "step": self.step,
            "steps": self.steps,
            "values": {name: list(series) for name, series in self.values.items()},
            "layers": {name: [list(each) for each in kept] for name, kept in self.layers.items()},
            "known": dict(self.known),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.step = int(state["step"])
        self.steps = int(state["steps"])
        self.values = {name: list(state["values"].get(name, ())) for name in QUANTITIES}
        self.layers = {
            name: [(int(step), float(norm)) for step, norm in kept]
            for name, kept in state["layers"].items()
        }
        self.known = {name: float(value) for name, value in state["known"].items()}
