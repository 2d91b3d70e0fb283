"""Start from weights of the usual width: what is far wider than its size asks for is narrowed.

When a run trains through with only the too wide weights brought down, the initialisation of these
is to blame; the other weights keep every bit.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention


class UsualInit(Intervention):
    """Scales initial weights that are more than three times as wide as usual down to that."""

    variable: ClassVar[str] = "usual_init"

    dose: Literal["on"]
    """There is only one: "on"."""

    def narrows_weights(self) -> bool:
        return True
