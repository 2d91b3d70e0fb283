"""Clip the total gradient norm before each update."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class ClipNorm(Intervention):
    """Scales the gradients down when their total L2 norm exceeds the dose.

    Where a loop clips by itself, each of its clippings is tightened to the dose, in the norm that
    it uses and over the parameters that it takes together; those that it leaves are clipped
    together. Several optimizers that nobody clips are clipped one by one.
    """

    variable: ClassVar[str] = "clip_norm"

    dose: float = Field(gt=0)
    """Largest total L2 norm, in the gradients' own unit, after unscaling."""

    def clip_norm(self, configured: float | None) -> float | None:
        return self.dose if configured is None else min(configured, self.dose)
