"""Scale the learning rate around each update, whatever the schedule does."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class LearningRate(Intervention):
    """Multiplies every parameter group's learning rate during the update."""

    variable: ClassVar[str] = "learning_rate"

    dose: float = Field(ge=0)
    """Factor on the configured rate: 0.5 halves it, 1.0 changes nothing, 0.0 freezes the model."""

    def lr_scale(self, step: int, *, warmup_steps: int) -> float:
        return self.dose
