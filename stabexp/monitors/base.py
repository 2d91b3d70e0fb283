"""A monitor measures named numbers on the device, fetched with the step's one host sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor, nn

from stabexp.config import Component

Measurements = Mapping[str, Tensor]
"""Name → 0-d tensor on any device. No monitor may call `.item()`: that would be a second sync."""


class Monitor(Component):
    """Measures something about the model every `every` steps."""

    every: int = Field(1, ge=1)
    """Measure on steps divisible by this."""

    def attach(self, model: nn.Module) -> None:
        """Get to know the model; called once before the first step."""

    def detach(self) -> None:
        """Take back every hook that `attach` left in the model."""

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        """Measure with the gradients at hand, unscaled and before clipping.

        Args:
            parameters: Those that have a gradient.
            gradient_norms: L2 norm of each one's gradient, shape (len(parameters),).
        """
        return {}

    def after_update(self) -> Measurements:
        """Measure just after the parameters moved."""
        return {}
