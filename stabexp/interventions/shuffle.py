"""Show the same data in another order: a placebo, because order alone is not a remedy."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class Shuffle(Intervention):
    """Selects another pseudo-random order of the same samples."""

    variable: ClassVar[str] = "shuffle"

    dose: int = Field(ge=0)
    """Which other order; 0 is the run's own."""

    def shuffle_salt(self) -> int:
        return self.dose
