"""What one optimizer does in one update: its gradients before, its parameters before and after.

Measurements stay on the device; the boundary brings those of all optimizers to the host at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from stabexp.errors import NotReplayableError
from stabexp.training.changes_update import UpdateChanges

SAMPLED = 256
"""Elements of each parameter that the update ratio is measured on."""


class UpdateWatch:
    """The updates of one optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer, changes: UpdateChanges) -> None:
        self.optimizer = optimizer
        self.changes = changes
        self.parameters: list[Tensor] = []
        self.depth = 0
        """How many nested calls of `step` are running: a step may call its parent's step."""
        self.gradient_norms: Tensor | None = None
        """L2 norm of each parameter's gradient before clipping, at the last look."""
        self.measured = False
        """Whether the gradients of the coming update have been looked at."""
        self.coefficient: Tensor | None = None
        """What clipping multiplied the gradients by; None when nothing clipped."""
        self.rate: Any = float("nan")
        """Rate of the first group at the last update: a number or a 0-d tensor."""
        self.distance: Tensor | None = None
        """||after - before||² of the sampled elements in the last update."""
        self.size: Tensor | None = None
        """||before||² of the sampled elements."""
        self._views: list[Tensor] = []
        self._before: Tensor | None = None
        self.look_again()
        if not self.parameters:
            raise NotReplayableError("run.steps: the optimizer holds no parameters")

    @property
    def device(self) -> torch.device:
        """Where the first parameter is."""
        return self.parameters[0].device

    def look_again(self) -> None:
        """Take note of parameters that were added since."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(held) != len(self.parameters):
            self.parameters = held
            self._views = [sample(p) for p in held if p.numel()]

    def forget(self) -> None:
        """Get ready for the next update."""
        self.depth = 0
        self.measured = False
        self.gradient_norms = self.coefficient = self.distance = self.size = None

    def with_gradient(self) -> list[Tensor]:
        """Return the parameters that have a gradient.

        Raises:
            NotReplayableError: If a gradient is sparse.
        """
        parameters = [p for p in self.parameters if p.grad is not None]
        if any(p.grad is not None and p.grad.is_sparse for p in parameters):
            raise NotReplayableError(
                "a gradient is sparse, so its norm and clipping are not defined here; "
                "build the embedding with sparse=False"
            )
        return parameters

    def scale_gradients(self, parameters: Sequence[Tensor], coefficient: Tensor) -> None:
        """Multiply the gradients of `parameters` by a 0-d tensor, and remember it."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        if len({gradient.device for gradient in gradients}) == 1:
            torch._foreach_mul_(gradients, coefficient.to(gradients[0].device))
        else:
            for gradient in gradients:
                gradient.mul_(coefficient.to(gradient.device))
        self.coefficient = coefficient

    def keep_rate(self, lr_scale: float) -> None:
        """Remember the learning rate of the update that is about to be made."""
        rate = self.changes.rate(self.optimizer, lr_scale=lr_scale)
        self.rate = rate.clone() if isinstance(rate, Tensor) else rate  # a schedule writes into it

    def update_begins(self, lr_scale: float) -> None:
        """Put the changes in force and remember where the parameters stand."""
        self.keep_rate(lr_scale)
        self.changes.lend(self.optimizer, lr_scale=lr_scale)
        self._before = self._sampled()

    def update_made(self) -> None:
        """Take the changes back and see how far the parameters moved."""
        self.changes.take_back(self.optimizer)
        assert self._before is not None
        before = self._before.float()
        self.distance = (self._sampled().float() - before).norm()
        self.size = before.norm()

    def _sampled(self) -> Tensor:
        return torch.cat([view.to(self.device) for view in self._views])


def sample(parameter: Tensor) -> Tensor:
    """Return a view of about `SAMPLED` elements spread over the parameter."""
    detached = parameter.detach()
    if not detached.is_contiguous():
        return detached[(0,) * (detached.dim() - 1)]
    flat = detached.view(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)]


def norms(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the L2 norm of each tensor, shape (len(tensors),), in float32 or wider."""
    if not tensors:
        return torch.zeros(1, device=device)
    wide = torch.float64 if tensors[0].dtype == torch.float64 else torch.float32
    found = torch._foreach_norm([tensor.detach() for tensor in tensors], 2, dtype=wide)
    return torch.stack([norm.to(device) for norm in found])
