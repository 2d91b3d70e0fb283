"""Warns of a crash while the run is still healthy, saves the state, and can act before it comes.

A warning is a forecast from trends (see `stabexp.prediction`): what grows, how fast, and when it
will be too much. Without a measure nothing but a checkpoint is added. With one the rate is halved,
or gradients are clipped at what was usual; for as long as the trend goes on it is tightened, and
when calm has returned it is taken back step by step. All of it is in the run's events.
Source rows A1, A18.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PrivateAttr
from torch import nn
from torch.optim import Optimizer

from stabexp.prediction import Forecast, Forecaster
from stabexp.records import StepRecord
from stabexp.stabilisers.base import Stabiliser

LEAST = 1e-4
"""Lowest factor on the rate."""
QUANTILE = 0.9
"""Of the healthy gradient norms: what clipping lets through untouched."""
RAMP_TOLERANCE = 2.0
"""A rate that climbed is taken for calm again below this many times what was usual."""


class EarlyWarning(Stabiliser):
    """Warns from trends, saves the state, and where asked lowers the rate or clips until calm."""

    measure: Literal["none", "lower_rate", "clip"] = "none"
    """What a warning does besides being recorded: nothing, halve the rate, or clip."""

    factor: float = Field(0.5, gt=0, lt=1)
    """What the measure multiplies the rate, or the clip norm, by each time."""

    again: int = Field(20, ge=1)
    """Steps after which the measure is tightened while the trend goes on."""

    calm: int = Field(40, ge=1)
    """Steps without a trend after which the measure is taken back."""

    ramp: int = Field(20, ge=1)
    """Steps in which one tightening is taken back."""

    snapshot: bool = True
    """Whether a warning saves the full state."""

    _forecaster: Forecaster = PrivateAttr(default_factory=Forecaster)
    _scale: float = PrivateAttr(1.0)
    _clip: float | None = PrivateAttr(None)
    _tightened: int = PrivateAttr(-1)
    _stood: int = PrivateAttr(-1)
    _rate: float | None = PrivateAttr(None)
    _wanted: bool = PrivateAttr(False)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._forecaster = Forecaster()
        self._scale, self._clip, self._rate = 1.0, None, None
        self._tightened = self._stood = -1

    @property
    def active(self) -> bool:
        """Whether a measure is in force, or being taken back."""
        return self._scale < 1.0

    def lr_scale(self, step: int) -> float:
        return self._scale if self.measure == "lower_rate" else 1.0

    def clip_norm(self, configured: float | None) -> float | None:
        if self.measure != "clip" or self._clip is None or not self.active:
            return configured
        # The scale starts at `factor`: the first limit is the usual norm itself.
        limit = self._clip * self._scale / self.factor
        return limit if configured is None else min(limit, configured)

    def after_step(self, record: StepRecord, history: Sequence[StepRecord]) -> None:
        if self.measure == "lower_rate" and self.active:
            record = replace(record, lr=record.lr / self._scale)  # the schedule's own
        new = self._forecaster.observe(record)
        standing = self._forecaster.standing
        if new is not None:
            self._wanted = self.snapshot
            self._tell(
                "warning", new.message, {k: v for k, v in new.figures().items() if k != "step"}
            )
        if standing:
            self._stood = record.step
        if self.measure == "none":
            return
        if self._rate is not None and record.lr > RAMP_TOLERANCE * self._rate:
            self._stood = record.step  # the rate stands where it was too high
        due = not self.active or record.step - self._tightened >= self.again
        if standing and due and (new is not None or self.active):
            self._tighten(standing[0], record.step)
        elif self.active and record.step - self._stood >= self.calm:
            self._loosen(record.step)

    def _tighten(self, found: Forecast, step: int) -> None:
        if not self.active and self.measure == "clip":
            self._clip = _quantile(self._forecaster.trace.last("grad_norm", 80, skip=20))
            if self._clip is None:
                return
        if found.kind == "rate_ramp" and self._rate is None:
            self._rate = found.usual
        self._scale = max(self._scale * self.factor, LEAST)
        self._tightened = step
        self._tell("measure", self._in_force(), {"kind": found.kind, "scale": self._scale})

    def _loosen(self, step: int) -> None:
        self._scale = min(1.0, self._scale * self.factor ** (-1 / self.ramp))
        if self._scale >= 1.0 - 1e-9:
            self._scale, self._clip, self._rate = 1.0, None, None
            self._tell("undone", f"calm since step {self._stood}: the measure is taken back", {})

    def _in_force(self) -> str:
        if self.measure == "clip":
            assert self._clip is not None
            return f"gradients are clipped to {self._clip * self._scale / self.factor:.4g}"
        return f"the learning rate is multiplied by {self._scale:.4g}"

    def _tell(self, what: str, message: str, figures: Mapping[str, Any]) -> None:
        self._events.append({"what": what, "message": message, **figures})

    def wants_snapshot(self) -> bool:
        wanted, self._wanted = self._wanted, False
        return wanted

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def state_dict(self) -> dict[str, Any]:
        return {
            "forecaster": self._forecaster.state_dict(),
            "scale": self._scale,
            "clip": self._clip,
            "tightened": self._tightened,
            "stood": self._stood,
            "rate": self._rate,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._forecaster.load_state_dict(state["forecaster"])
        self._scale = float(state["scale"])
        self._clip = state["clip"]
        self._tightened = int(state["tightened"])
        self._stood = int(state["stood"])
        self._rate = state["rate"]


def _quantile(norms: Sequence[float]) -> float | None:
    known = sorted(norm for norm in norms if norm - norm == 0)
    return known[int(QUANTILE * (len(known) - 1))] if known else None
