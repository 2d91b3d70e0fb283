"""Divide by a larger number where Adam's second moment is near zero.

The usual 1e-8 is 0 in float16, and a rare gradient over a near-zero second moment is a giant step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from stabexp.interventions.optimizer_options import OptimizerOptions


class AdamEps(OptimizerOptions):
    """Replaces `eps`; refused for an optimizer that has none."""

    variable: ClassVar[str] = "adam_eps"

    dose: float = Field(ge=0)
    """Added to the root of the second moment, in the gradient's unit."""

    def optimizer_options(self) -> Mapping[str, float | tuple[float, float]]:
        return {"eps": self.dose}
