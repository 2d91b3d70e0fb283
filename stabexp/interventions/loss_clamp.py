"""Take the gradient away from batches whose loss is too high, as `torch.clamp(loss, max=…)` does.

When a run survives without the gradients of its few worst batches, these batches are what it dies
of, and no setting.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class LossClamp(Intervention):
    """Multiplies the gradient of every (micro-)batch whose loss exceeds the dose by zero.

    Acts on the tensor given to `run.log`, so that tensor must be what `backward()` comes through,
    before or after a division or a scaling. The recorded loss stays the true one. A loss that is
    infinite or NaN still has gradients that are NaN: zero times infinity is no number.
    """

    variable: ClassVar[str] = "loss_clamp"

    dose: float = Field()
    """Largest loss of a (micro-)batch that still has a gradient, in the unit of the logged loss."""

    def loss_limit(self) -> float:
        return self.dose
