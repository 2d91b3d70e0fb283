"""Ramp the learning rate up linearly over the first steps of the run."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class Warmup(Intervention):
    """Replaces the run's linear warmup by a longer one.

    Only meaningful from step 0: a ramp that starts at a later checkpoint is a rate cut, no warmup.
    Where a decay follows, it keeps the steps the run gave it; the ramp lies on top of it.
    """

    variable: ClassVar[str] = "warmup"

    dose: int = Field(ge=0)
    """Steps until the full rate is reached; step k uses (k + 1) / dose of it."""

    def lr_scale(self, step: int, *, warmup_steps: int) -> float:
        return ramp(step, self.dose) / ramp(step, warmup_steps)


def ramp(step: int, warmup_steps: int) -> float:
    """Return the share of the full learning rate that a linear warmup allows at `step`, 0 to 1."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps > 0 else 1.0
