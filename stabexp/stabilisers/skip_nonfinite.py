"""Leaves an update out when the loss or a gradient is not finite, counts it, and heals the buffers.

Parameters and optimizer state stay as they are. A forward pass that met NaN has also written it
into running statistics, which no skipped update takes back; so the model's buffers are copied
before every step and put back after such a one. The decision whether to step is made on the host,
so this costs one more host sync per update than anything else here. Source row C6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.errors import TrainingError
from stabexp.records import StepRecord
from stabexp.stabilisers.base import Stabiliser
from stabexp.state.module_state import uncompiled


class SkipNonfinite(Stabiliser):
    """Skips updates with a non-finite loss or gradient; one more host sync per update."""

    at_most: int | None = Field(None, ge=1)
    """Skips in a row after which the training ends with an error; empty leaves it to detectors."""

    buffers: bool = True
    """Whether buffers, such as running statistics, go back to what they were before the step."""

    _loss_ok: Tensor | None = PrivateAttr(None)
    _buffers: list[Tensor] = PrivateAttr(default_factory=list)
    _copies: list[Tensor] = PrivateAttr(default_factory=list)
    _copied_for: int | None = PrivateAttr(None)
    _skipped: int = PrivateAttr(0)
    _in_a_row: int = PrivateAttr(0)
    _skips_now: bool = PrivateAttr(False)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._loss_ok, self._copied_for, self._skips_now = None, None, False
        self._skipped = self._in_a_row = 0
        self._events = []
        # A mask is no memory of what the model has seen.
        kept = [b for b in uncompiled(model).buffers() if b.dtype != torch.bool]
        self._buffers = kept if self.buffers else []
        self._copies = [buffer.detach().clone() for buffer in self._buffers]

    def batch_begins(self, step: int) -> None:
        if not self._buffers or self._copied_for == step:
            return
        self._copied_for = step
        with torch.no_grad():
            torch._foreach_copy_(self._copies, self._buffers)

    def logged(self, loss: Tensor) -> None:
        fine = torch.isfinite(loss.detach()).all()
        self._loss_ok = fine if self._loss_ok is None else self._loss_ok & fine

    def skips_update(self, parameters: Sequence[Tensor], gradient_norms: Tensor) -> bool:
        fine = torch.isfinite(gradient_norms).all()
        if self._loss_ok is not None:
            fine = fine & self._loss_ok.to(fine.device)
        skips = not bool(fine)
        self._skips_now = self._skips_now or skips
        return skips

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        """Count, and put buffers back where an update was left out, by the loss scaler too.

        Raises:
            TrainingError: If more updates in a row were left out than allowed.
        """
        bad_loss = not math.isfinite(record.loss)
        bad_gradient = record.nonfinite_grads > 0 or not math.isfinite(record.grad_norm)
        skipped = self._skips_now or (record.skipped and (bad_loss or bad_gradient))
        self._loss_ok, self._skips_now = None, False
        if not skipped:
            self._in_a_row = 0
            return
        self._skipped += 1
        self._in_a_row += 1
        self._put_back()
        what = f"the loss was {record.loss}" if bad_loss else "a gradient was not finite"
        self._events.append(
            {
                "message": f"left the update of step {record.step} out: {what}",
                "skipped": self._skipped,
                "in_a_row": self._in_a_row,
            }
        )
        if self.at_most is not None and self._in_a_row > self.at_most:
            raise TrainingError(
                f"stabilisers.skip_nonfinite: {self._in_a_row} updates in a row were left out, up "
                f"to step {record.step}, the last because {what} (at_most {self.at_most}); leaving "
                "more out will not help: bisect the run"
            )

    def _put_back(self) -> None:
        if self._buffers and self._copied_for is not None:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers, self._copies)

    def measured(self) -> Mapping[str, Tensor]:
        return {"skip_nonfinite/skipped": torch.tensor(self._skipped)}

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self._skipped, "in_a_row": self._in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._skipped, self._in_a_row = int(state["skipped"]), int(state["in_a_row"])
