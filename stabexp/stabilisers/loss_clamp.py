"""A batch whose loss is far too high has no more influence than one at the limit.

`torch.clamp(loss, max=100)` takes the whole gradient away from such a batch, and if every loss is
above the limit, the model never learns again. The softer form multiplies the gradient by limit ÷
loss, which is the gradient of limit · (1 + ln(loss ÷ limit)): bounded, and never zero. Source row
B20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from stabexp.errors import TrainingError
from stabexp.records import StepRecord
from stabexp.stabilisers.base import Stabiliser


class LossClamp(Stabiliser):
    """Bounds the gradient of (micro-)batches whose loss exceeds a limit, and counts them.

    Acts on the tensor given to `run.log`, so that tensor must be what `backward()` comes through.
    The recorded loss stays the true one.
    """

    limit: float = Field(100.0, gt=0)
    """Loss above which a (micro-)batch's gradient is bounded, in the unit of the logged loss."""

    form: Literal["soft", "hard"] = "soft"
    """soft multiplies the gradient by limit ÷ loss; hard drops it, as torch.clamp does."""

    _handles: list[RemovableHandle] = PrivateAttr(default_factory=list)
    _clamped: Tensor | None = PrivateAttr(None)
    _logged: bool = PrivateAttr(False)
    _reached: bool = PrivateAttr(False)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._clamped = None
        self._logged = self._reached = False

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def logged(self, loss: Tensor) -> None:
        if not loss.requires_grad:
            return
        self._logged = True
        value = loss.detach()
        # Taken now: a loop may divide the tensor in place before it calls backward.
        within = value <= self.limit
        zero = torch.zeros_like(value)
        if self.form == "hard":
            factor = torch.where(within, torch.ones_like(value), zero)
        else:
            # An infinite or NaN loss has no gradient that could be used.
            factor = torch.where(within, 1.0, (self.limit / value).nan_to_num(0.0))
        above = (~within).sum()
        self._clamped = above if self._clamped is None else self._clamped + above

        def gradient_came(gradient: Tensor) -> Tensor:
            self._reached = True
            return torch.where(factor > 0, gradient * factor.to(gradient.dtype), 0.0)

        self._handles.append(loss.register_hook(gradient_came))  # type: ignore[no-untyped-call]

    def measured(self) -> Mapping[str, Tensor]:
        return {} if self._clamped is None else {"loss_clamp/clamped": self._clamped}

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        """Get ready for the next step.

        Raises:
            TrainingError: If an update was made and no gradient came through a logged loss.
        """
        logged, reached = self._logged, self._reached
        self.detach()
        self._logged = self._reached = False
        if not logged or not reached:
            raise TrainingError(
                "stabilisers.loss_clamp: no gradient came through the tensor given to run.log, so "
                "its loss cannot be clamped; call run.log(loss) before loss.backward(), with the "
                "very tensor"
            )

    def state_dict(self) -> dict[str, Any]:
        return {} if self._clamped is None else {"clamped": self._clamped.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "clamped" in state:
            self._clamped = state["clamped"].clone()
