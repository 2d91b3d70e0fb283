"""Make every gradient larger or smaller just before the update.

Adam divides by the gradient's own size and hardly notices; SGD does. So a run that heals is one
whose loss has the wrong scale: micro-batches summed where they should be averaged, for example.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class GradientScale(Intervention):
    """Multiplies the gradients the optimizer sees, after unscaling and all clipping."""

    variable: ClassVar[str] = "gradient_scale"

    dose: float = Field(ge=0)
    """Factor on every gradient: 1.0 changes nothing."""

    def gradient_scale(self) -> float:
        return self.dose
