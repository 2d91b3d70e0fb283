"""The forecaster follows a run step by step and warns once of each thing that is coming.

It keeps its own short memory and looks at nothing else, so a recorded run can be judged again
exactly as it was while it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabexp.prediction.base import Forecast, Kind, Rule
from stabexp.prediction.edge import edge_of_stability
from stabexp.prediction.limits import attention_growth, half_headroom, logit_drift
from stabexp.prediction.rates import rate_ramp
from stabexp.prediction.trace import Trace
from stabexp.prediction.weights import weight_growth
from stabexp.records import StepRecord

RULES: tuple[Rule, ...] = (
    half_headroom,
    attention_growth,
    logit_drift,
    rate_ramp,
    weight_growth,
    edge_of_stability,
)
"""In order of precedence: the more specific first."""
QUIET = 60
"""Steps without a trend after which the same trend is warned of again."""


class Forecaster:
    """Judges step after step; `standing` tells what it sees now, `observe` what is new."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.standing: tuple[Forecast, ...] = ()
        """What the newest step showed, warned of or not."""
        self._seen: dict[str, int] = {}

    def observe(self, record: StepRecord) -> Forecast | None:
        """Take in the next step; return a forecast the first time its trend shows."""
        self.trace.add(record)
        found = (rule(self.trace) for rule in RULES)
        self.standing = tuple(each for each in found if each is not None)
        new = [each for each in self.standing if self._is_new(each.kind)]
        for each in self.standing:
            self._seen[each.kind] = record.step
        return new[0] if new else None

    def _is_new(self, kind: Kind) -> bool:
        last = self._seen.get(kind)
        return last is None or self.trace.step - last > QUIET

    def state_dict(self) -> dict[str, Any]:
        """Return what decides what it says next."""
        return {"trace": self.trace.state_dict(), "seen": dict(self._seen)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.trace.load_state_dict(state["trace"])
        self._seen = {kind: int(step) for kind, step in state["seen"].items()}
        self.standing = ()


def warnings_in(records: Iterable[StepRecord]) -> tuple[Forecast, ...]:
    """Return every warning that a run's steps would have given, in order."""
    forecaster = Forecaster()
    found = (forecaster.observe(record) for record in records)
    return tuple(each for each in found if each is not None)
