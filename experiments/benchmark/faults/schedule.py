"""Learning rates that go wrong in the middle of a run: a wrong unit, a restart, a cyclic peak."""

from __future__ import annotations

from typing import Literal

from experiments.benchmark.faults.base import Fault

Shape = Literal["jump", "peak", "climb"]


class RateJump(Fault):
    """From step `at` on the schedule multiplies the rate by up to `by`."""

    needs_loop = True

    def __init__(self, *, at: int, by: float, shape: Shape) -> None:
        """`jump`: at once and for good · `peak`: up and down over 80 steps · `climb`: over 20."""
        self.at = at
        self.by = by
        self.shape = shape

    def rate(self, step: int, *, factor: float) -> float:
        since = step - self.at
        if since < 0:
            return factor
        if self.shape == "peak":
            share = max(0.0, 1 - abs(since - 40) / 40)
        elif self.shape == "climb":
            share = min(1.0, (since + 1) / 20)
        else:
            share = 1.0
        return factor * float(self.by**share)

    def strikes(self) -> int | None:
        # A rate that climbs does its harm somewhere on the way, and no step is the known one.
        return self.at if self.shape == "jump" else None
