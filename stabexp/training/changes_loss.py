"""A batch whose loss is too high gives no gradient, as if the loop had clamped its loss.

The gradient that comes back to the logged tensor is dropped there. So it does not matter whether
the loop divides or scales the loss afterwards, and the tensor itself keeps its value.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from stabexp.errors import NotReplayableError


class LossClamp:
    """Drops gradients of logged losses above a limit, to the bit as `torch.clamp` would."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._reached = False
        self._handles: list[RemovableHandle] = []

    def watch(self, loss: Tensor) -> None:
        """Act on the gradient of this loss, should it come."""
        if not loss.requires_grad:
            return
        # Compared now: a loop may divide the tensor in place before it calls backward.
        kept = loss.detach() <= self._limit

        def gradient_came(gradient: Tensor) -> Tensor:
            self._reached = True
            return torch.where(kept, gradient, torch.zeros_like(gradient))

        self._handles.append(loss.register_hook(gradient_came))  # type: ignore[no-untyped-call]

    def update_ends(self) -> None:
        """Get ready for the next step.

        Raises:
            NotReplayableError: If an update was made and no gradient came through a logged loss.
        """
        reached, self._reached = self._reached, False
        self.remove()
        if not reached:
            raise NotReplayableError(
                "loss_clamp: no gradient came through the tensor given to run.log, so its loss "
                "cannot be clamped; call run.log(loss) before loss.backward(), with the very tensor"
            )

    def remove(self) -> None:
        """Take every hook back."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
