"""The highest rate of a run is one that is usual for what is tuned (source row B6)."""

from __future__ import annotations

from typing import ClassVar

from stabexp.instruments.base import Watched
from stabexp.instruments.rule_base import Finding, Rule
from stabexp.preflight.rate_ranges import TITLES, range_for
from stabexp.preflight.schedules import RateOverTheRun
from stabexp.preflight.tuning import kind_of_tuning

OUTSIDE = 2.0
"""Times beyond the usual range: a range is a habit, not a limit."""


class UsualRate(Rule):
    """The highest rate of the run is one that is usual for what is tuned."""

    slug: ClassVar[str] = "rate_outside_range"

    def __init__(self, rates: RateOverTheRun) -> None:
        """`rates` knows the rate over the whole run."""
        self._rates = rates
        self._kind = self._optimizer = ""

    def attach(self, watched: Watched) -> None:
        self._kind, self._optimizer = (
            kind_of_tuning(watched.model),
            type(watched.optimizer).__name__,
        )

    def finding(self) -> Finding | None:
        usual = range_for(self._kind, self._optimizer)
        peak = max(self._rates.rates, default=0.0)
        if usual is None or not peak or usual.low / OUTSIDE <= peak <= usual.high * OUTSIDE:
            return None
        return Finding(
            rule=self.slug,
            step=0,
            place=self._optimizer,
            detail=f"the highest rate of the run is {peak:.3g}; for {TITLES[self._kind]} with "
            f"{self._optimizer} {usual.low:.3g} to {usual.high:.3g} is usual",
            remedy="take a rate from this range, or measure one: stabexp lr-find",
            strength="suspicious",
        )
