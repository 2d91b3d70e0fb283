"""Keep the learning rate where it was, whatever the schedule does next.

When a run survives at the rate it had and dies at the one it was given, the schedule is to blame.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention


class HoldRate(Intervention):
    """Makes every update at the rate that was in force just before the first replayed step."""

    variable: ClassVar[str] = "hold_rate"

    dose: Literal["on"]
    """There is only one: "on"."""

    def holds_rate(self) -> bool:
        return True
