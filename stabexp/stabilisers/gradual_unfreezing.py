"""Trains the top of a model first, then one further layer at a time, down to the bottom.

A new head sends large, useless gradients into layers that were trained well; they come along once
the head has learned. Nothing of a frozen layer moves: it has no gradient, so the optimizer keeps no
state for it and decays nothing. Which layers train follows from the step alone, so a replay from
any checkpoint is exact. Source row B17; the one-by-one order is that of Howard and Ruder 2018,
"Universal Language Model Fine-tuning for Text Classification".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr, model_validator
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from stabexp.errors import ConfigError
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.frozen import Frozen, check_parallel
from stabexp.stabilisers.model_parts import parameters_of, stages
from stabexp.state.module_state import uncompiled


class GradualUnfreezing(Stabiliser):
    """Trains the top layers only at first, then unfreezes layer by layer."""

    hold: float = Field(0.1, ge=0, le=1)
    """Share of the steps in which only the top trains."""

    complete: float = Field(0.5, ge=0, le=1)
    """Share of the steps after which everything trains; the layers come evenly until then."""

    top: int = Field(1, ge=1)
    """How many layers train from the start, counted from the top."""

    layers: list[str] = Field([])
    """Names or patterns from top to bottom; default: the model's blocks, what is above the last
    one the top, what is below the first one the bottom."""

    steps: int | None = Field(None, ge=1)
    """Steps of the whole training, where the run does not know them."""

    _planned: int | None = PrivateAttr(None)
    _stages: list[list[Tensor]] = PrivateAttr(default_factory=list)
    _names: list[str] = PrivateAttr(default_factory=list)
    _frozen: Frozen = PrivateAttr(default_factory=Frozen)
    _open: int = PrivateAttr(0)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _in_order(self) -> GradualUnfreezing:
        if self.complete < self.hold:
            raise ValueError(f"complete {self.complete} comes before hold {self.hold}")
        return self

    def plan(self, *, steps: int | None, scaler: GradScaler | None) -> None:
        self._planned = steps

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Find the layers.

        Raises:
            ConfigError: If a pattern names nothing, or the number of steps is not known.
        """
        place = "stabilisers.gradual_unfreezing"
        check_parallel(model, place)
        self._planned = self.steps or self._planned
        if self._planned is None:
            raise ConfigError(f"{place}.steps: the run does not know how many it has; set it")
        own = uncompiled(model)
        named = [[pattern] for pattern in self.layers] or list(reversed(stages(own)))
        self._stages, self._names, taken = [], [], set()
        for patterns in named:
            found = parameters_of(own, patterns, section=f"{place}.layers")
            # A tied weight trains with the uppermost layer that it is in.
            fresh = [p for p in found.values() if p.requires_grad and id(p) not in taken]
            taken |= set(map(id, fresh))
            self._stages.append(fresh)
            self._names.append(", ".join(patterns))
        rest: list[Tensor] = [p for p in own.parameters() if p.requires_grad and id(p) not in taken]
        if rest:
            self._stages.append(rest)
            self._names.append("the rest")
        self._open, self._events = self.open_at(step - 1) if step else 0, []

    def open_at(self, step: int) -> int:
        """Return how many layers, from the top, train at a step."""
        assert self._planned is not None
        closed = len(self._stages) - self.top
        start, end = self.hold * self._planned, self.complete * self._planned
        if step < start or closed <= 0:
            return min(self.top, len(self._stages))
        if step >= end:
            return len(self._stages)
        return self.top + min(closed, 1 + int((step - start) * closed / (end - start)))

    def batch_begins(self, step: int) -> None:
        count = self.open_at(step)
        self._frozen.hold([p for stage in self._stages[count:] for p in stage])
        if count != self._open:
            self._events.append(
                {
                    "message": f"trains from step {step} on: {'; '.join(self._names[:count])}",
                    "layers": count,
                    "of": len(self._stages),
                }
            )
            self._open = count

    def batch_ends(self) -> None:
        self._frozen.release()

    def detach(self) -> None:
        self._frozen.release()

    def measured(self) -> Mapping[str, Tensor]:
        return {"gradual_unfreezing/layers": torch.tensor(self._open)}

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events
