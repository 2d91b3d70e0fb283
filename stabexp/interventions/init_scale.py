"""Start from smaller, or larger, weights.

Every trained weight of two or more dimensions is scaled, not only those that look too large: which
of them are too large is what the replay asks, and biases and norm gains have their own scale.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class InitScale(Intervention):
    """Multiplies the initial weights; changes nothing in a replay from a later checkpoint."""

    variable: ClassVar[str] = "init_scale"

    dose: float = Field(gt=0)
    """Factor on every weight of two or more dimensions that is trained: 1.0 changes nothing."""

    def initial_scale(self) -> float:
        return self.dose
