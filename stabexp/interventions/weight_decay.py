"""Pull the weights towards zero less, or more, than the optimizer was told to."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class WeightDecay(Intervention):
    """Multiplies every parameter group's weight decay during the update."""

    variable: ClassVar[str] = "weight_decay"

    dose: float = Field(ge=0)
    """Factor on the configured decay: 1.0 changes nothing, 0.0 is none. No decay stays none."""

    def weight_decay_scale(self) -> float:
        return self.dose
