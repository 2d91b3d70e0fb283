"""Run compiled code as it was written, to see whether the compiler changed what it computes."""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention


class Eager(Intervention):
    """Turns torch.compile off."""

    variable: ClassVar[str] = "eager"

    dose: Literal["on"]
    """There is only one: "on"."""

    def eager(self) -> bool:
        return True
