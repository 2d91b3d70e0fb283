"""Protect what the optimizer remembers, or make it forget.

"kept" cures a run that lost its moments on the way; "fresh" cures one whose moments had gone bad.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention


class OptimizerState(Intervention):
    """Keeps the optimizer's state from one update to the next, or empties it once."""

    variable: ClassVar[str] = "optimizer_state"

    dose: Literal["kept", "fresh"]
    """kept: what emptied or changed it between two updates is undone · fresh: empty at the fork."""

    def keeps_optimizer_state(self) -> bool:
        return self.dose == "kept"

    def empties_optimizer_state(self) -> bool:
        """Return whether the replay begins with an optimizer that remembers nothing."""
        return self.dose == "fresh"
