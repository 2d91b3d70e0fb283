"""Rates for a short trial training, whatever the loop's own schedule does.

Both set the rate of the first parameter group and keep the others in proportion to it. They act as
every intervention does, at the optimizer boundary, so they work in any loop and any trainer.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions import Intervention, ramp

OF_THE_RATE = frozenset({"learning_rate", "warmup", "hold_rate"})
"""Interventions of a run that a trial training leaves out: it sets the rate itself."""


class RateRamp(Intervention):
    """Raises the rate by the same factor every step."""

    variable: ClassVar[str] = "rate_ramp"

    first: float = Field(1e-7, gt=0)
    """Rate of step 0."""

    last: float = Field(10.0, gt=0)
    """Rate of the last step."""

    steps: int = Field(200, ge=2)
    """How many steps it takes."""

    def rate(self, step: int) -> float:
        """Return the rate of `step`, from 0."""
        return float(self.first * (self.last / self.first) ** (step / (self.steps - 1)))

    def sets_rate(self) -> bool:
        return True

    def lr_scale(self, step: int, *, warmup_steps: int) -> float:
        return self.rate(step)


class ConstantRate(Intervention):
    """Trains at one rate, after a linear warmup if asked."""

    variable: ClassVar[str] = "constant_rate"

    dose: float = Field(gt=0)
    """The rate."""

    warmup: int = Field(0, ge=0)
    """Steps until it is reached; step k uses (k + 1) / warmup of it."""

    def sets_rate(self) -> bool:
        return True

    def lr_scale(self, step: int, *, warmup_steps: int) -> float:
        return self.dose * ramp(step, self.warmup)
