"""A monitor measures named numbers on the device, fetched with the step's one host sync."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.config import Component
from stabexp.records import StepRecord

Measurements = Mapping[str | tuple[str, ...], Tensor]
"""Name → 0-d tensor, or names → 1-d tensor of as many, on any device.

One tensor for all layers costs one operation where hundreds of single numbers would cost hundreds.
No monitor may call `.item()`: that would be a second sync.
"""


class Monitor(Component):
    """Measures something about the training every `every` steps.

    Order of calls: attach · at every step that is due: step_begins, before_update, after_update,
    recorded · detach.
    """

    every: int = Field(1, ge=1)
    """Measure on steps divisible by this."""

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        """Get to know the training; called once before the first step."""

    def detach(self) -> None:
        """Take back every hook that is left in the model."""

    def step_begins(self) -> None:
        """Get ready for the forward pass of a step that is due, before its first batch."""

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        """Measure with the gradients at hand, unscaled and before clipping.

        Called once for each optimizer that steps.

        Args:
            parameters: Those that have a gradient.
            gradient_norms: L2 norm of each one's gradient, shape (len(parameters),).
        """
        return {}

    def after_update(self, parameters: Sequence[Tensor], parameter_norms: Tensor) -> Measurements:
        """Measure just after the parameters moved.

        Args:
            parameters: All that an optimizer holds.
            parameter_norms: L2 norm of each, shape (len(parameters),).
        """
        return {}

    def recorded(self, record: StepRecord, history: Sequence[StepRecord]) -> Mapping[str, float]:
        """Return numbers that need no device: what the records themselves, or the machine, show.

        Args:
            record: The step that is over.
            history: The records before it, the newest last.
        """
        return {}
