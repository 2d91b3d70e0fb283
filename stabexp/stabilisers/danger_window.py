"""Passes the stretch in which a run crashed at an eased rate and clip, and gives both back after.

A run that goes on from a checkpoint meets the same stretch again. Inside the window the learning
rate is multiplied, kept from rising above what it was at the start, and gradients are clipped;
after it everything stays so, or returns to the original setting on a geometric ramp, because a rate
given back at once is a second spike. Source rows A13, B20.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field, PrivateAttr, model_validator
from torch import nn
from torch.optim import Optimizer

from stabexp.records import StepRecord
from stabexp.stabilisers.base import Stabiliser

LOOSE = 100.0
"""How far a clip norm is raised on the ramp before it is taken away."""


class DangerWindow(Stabiliser):
    """Eases rate and clip from one step to another, and ramps them back where asked."""

    first: int = Field(0, ge=0)
    """First step of the window."""

    last: int = Field(ge=1)
    """One past its last step."""

    rate: float = Field(1.0, gt=0, le=1)
    """Factor on the learning rate."""

    cap: bool = False
    """Whether the rate may not rise above what it was at the window's first step."""

    clip: float | None = Field(None, gt=0)
    """Largest total gradient norm (L2, unscaled); null leaves clipping as it is."""

    ramp: int | None = Field(None, ge=0)
    """Steps after the window in which the original setting is given back; null never does."""

    _optimizer: Optimizer | None = PrivateAttr(default=None)
    _ceiling: float | None = PrivateAttr(default=None)
    _step: int = PrivateAttr(default=0)
    _told: list[str] = PrivateAttr(default_factory=list)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last <= self.first:
            raise ValueError(f"last ({self.last}) must come after first ({self.first})")
        return self

    def share(self, step: int) -> float:
        """Return how much of the easing is in force at `step`: 1 inside, 0 once given back."""
        if step < self.first:
            return 0.0
        if step < self.last or self.ramp is None:
            return 1.0
        return max(0.0, 1.0 - (step - self.last + 1) / (self.ramp + 1))

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._optimizer = optimizers[0]

    def lr_scale(self, step: int) -> float:
        if self._ceiling is None and step >= self.first:
            self._ceiling = self._own_rate()
        now = self._own_rate()
        scale = self.rate
        if self.cap and self._ceiling is not None and now > self._ceiling > 0:
            scale *= self._ceiling / now
        return float(scale ** self.share(step)) if scale != 1.0 else 1.0

    def clip_norm(self, configured: float | None) -> float | None:
        share = self.share(self._step)
        if self.clip is None or share == 0.0:
            return configured
        limit = float(self.clip * LOOSE ** (1.0 - share))
        return limit if configured is None else min(configured, limit)

    def batch_begins(self, step: int) -> None:
        self._step = step

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        for step, name, message in (
            (
                self.first,
                "began",
                f"the danger window began, up to step {self.last}: {self._eased}",
            ),
            (self.last, "passed", f"the danger window was passed; {self._after}"),
            (
                self.last + (self.ramp or 0),
                "given back",
                "rate and clip are the original ones again" if self.ramp is not None else "",
            ),
        ):
            if message and record.step >= step and name not in self._told:
                self._told.append(name)
                self._events.append({"message": message, "event": name})

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        return {"ceiling": self._ceiling, "told": list(self._told)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ceiling, self._told = state["ceiling"], list(state["told"])

    @property
    def _eased(self) -> str:
        parts = [f"rate ×{self.rate:g}"] if self.rate != 1.0 else []
        if self.cap:
            parts.append("rate held where it was")
        if self.clip is not None:
            parts.append(f"clip {self.clip:.3g}")
        return ", ".join(parts) or "nothing is eased, only watched"

    @property
    def _after(self) -> str:
        if self.ramp is None:
            return "the eased setting stays"
        return f"the original setting comes back over {self.ramp} steps"

    def _own_rate(self) -> float:
        assert self._optimizer is not None
        return float(self._optimizer.param_groups[0]["lr"])
