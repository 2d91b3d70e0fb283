"""Sets the figures of the run's gradient scaler, and keeps the history of its scale and overflows.

Small gradients vanish in float16, so the loss is multiplied before backward by the largest factor
that does not overflow: doubled after `growth_window` clean updates, halved at an overflow, whose
update is left out. Acts on the scaler given to `run.steps`, `run.scaler()`'s or the loop's own.
Source row A9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stabexp.records import StepRecord
from stabexp.stabilisers.base import Stabiliser


class LossScaling(Stabiliser):
    """Dynamic loss scaling with figures of your own; overflows and scale changes are recorded."""

    initial: float = Field(2.0**16, gt=0)
    """Factor on the loss at the start."""

    factor: float = Field(2.0, gt=1)
    """What the scale grows and falls by."""

    growth_window: int = Field(2000, ge=1)
    """Updates without an overflow after which it grows."""

    _scaler: GradScaler | None = PrivateAttr(None)
    _overflows: int = PrivateAttr(0)
    _scale: float | None = PrivateAttr(None)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _told: bool = PrivateAttr(False)

    def plan(self, *, steps: int | None, scaler: GradScaler | None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._overflows, self._scale, self._events, self._told = 0, None, [], False
        scaler = self._scaler
        if scaler is None:
            return
        scaler.set_growth_factor(self.factor)
        scaler.set_backoff_factor(1.0 / self.factor)
        scaler.set_growth_interval(self.growth_window)
        if step == 0:  # later the scale is part of the state that was put back
            if scaler._scale is None:
                scaler._init_scale = self.initial
            else:
                scaler._scale.fill_(self.initial)
        self._scale = scaler.get_scale()

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        if self._scaler is None:
            if not self._told:
                self._told = True
                message = "the run has no gradient scaler, so no loss is scaled; precision: fp16"
                self._events.append({"message": message})
            return
        bad = record.nonfinite_grads > 0 or not math.isfinite(record.grad_norm)
        self._overflows += record.skipped and bad
        scale, before = record.loss_scale, self._scale
        self._scale = scale
        if scale is not None and before is not None and scale != before:
            why = "overflow" if scale < before else f"{self.growth_window} updates without one"
            self._events.append(
                {
                    "message": f"loss scale {before:g} → {scale:g}: {why}",
                    "scale": scale,
                    "overflows": self._overflows,
                }
            )

    def measured(self) -> Mapping[str, Tensor]:
        return {"loss_scaling/overflows": torch.tensor(self._overflows)}

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        return {"overflows": self._overflows, "told": self._told}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._overflows, self._told = int(state["overflows"]), bool(state["told"])
