"""Clips a gradient that is large compared with those before it.

The limit follows the norms of the run itself, so it is right for a CNN as for a transformer, at the
start as at the end. It acts on all of an optimizer's gradients together, on top of any fixed limit,
costs no host sync, and its memory is part of every checkpoint. Source row A16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.clip_rules import (
    MeanDeviation,
    Quantile,
    Rule,
    State,
    ZScore,
    clip_factors,
)

WARMUP = {"mean_deviation": 5, "quantile": 5, "z_score": 25}
WINDOW = {"mean_deviation": 100, "quantile": 1000, "z_score": 0}
DEVIATIONS = {"mean_deviation": 3.0, "quantile": 0.0, "z_score": 2.5}


class AdaptiveClip(Stabiliser):
    """Clips the total gradient norm to a limit that follows the norms before it."""

    kind: Literal["mean_deviation", "quantile", "z_score"] = "mean_deviation"
    """mean_deviation: moving mean + k deviations; quantile: AutoClip; z_score: ZClip."""

    deviations: float | None = Field(None, gt=0)
    """How many deviations above the mean are allowed; default 3, and 2.5 for z_score."""

    quantile: float = Field(0.1, ge=0, le=1)
    """Of kind quantile: share of earlier norms that are below the limit (AutoClip: 0.1)."""

    window: int | None = Field(None, ge=2)
    """How many norms are remembered; default 100, and 1000 for quantile."""

    memory: float = Field(0.97, gt=0, lt=1)
    """Of kind z_score: how much of the moving average stays at each step."""

    warmup: int | None = Field(None, ge=2)
    """Norms to see before anything is clipped; default 5, and 25 for z_score (ZClip)."""

    at_most: float | None = Field(None, gt=0)
    """Never allow more than this, in warmup either; None for no such bound."""

    _optimizers: list[Optimizer] = PrivateAttr(default_factory=list)
    _rule: Rule | None = PrivateAttr(None)
    _states: dict[str, State] = PrivateAttr(default_factory=dict)
    _clipped: dict[str, Tensor] = PrivateAttr(default_factory=dict)
    _limits: dict[str, Tensor] = PrivateAttr(default_factory=dict)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        self._optimizers = list(optimizers)
        self._rule = self.rule()
        self._states, self._clipped, self._limits = {}, {}, {}

    def rule(self) -> Rule:
        """Return the rule with its figures."""
        warmup = self.warmup or WARMUP[self.kind]
        window = self.window or WINDOW[self.kind]
        deviations = self.deviations or DEVIATIONS[self.kind]
        if self.kind == "quantile":
            return Quantile(window=window, warmup=warmup, quantile=self.quantile)
        if self.kind == "z_score":
            return ZScore(memory=self.memory, warmup=warmup, deviations=deviations)
        return MeanDeviation(window=window, warmup=warmup, deviations=deviations)

    def factors(self, parameters: Sequence[Tensor], gradient_norms: Tensor) -> Tensor | None:
        rule = self._rule
        assert rule is not None
        name = self._optimizer_of(parameters)
        total = gradient_norms.norm()
        if name not in self._states:
            self._states[name] = rule.start(total.device)
            self._clipped[name] = torch.zeros((), dtype=torch.int64, device=total.device)
        state = self._states[name]
        limit = rule.limit_for(state, total) if isinstance(rule, ZScore) else rule.limit(state)
        if self.at_most is not None:
            limit = limit.clamp(max=self.at_most)
        self._limits[name] = rule.limit(state)
        rule.see(state, total, limit)
        factor = clip_factors(total, limit)
        self._clipped[name].add_((factor < 1.0).long())
        return factor

    def _optimizer_of(self, parameters: Sequence[Tensor]) -> str:
        """Return "0", "1", …: which optimizer's gradients these are."""
        if len(self._optimizers) == 1 or not parameters:
            return "0"
        wanted = parameters[0]
        for index, optimizer in enumerate(self._optimizers):
            if any(p is wanted for group in optimizer.param_groups for p in group["params"]):
                return str(index)
        return "0"

    def measured(self) -> Mapping[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, limit in self._limits.items():
            place = "adaptive_clip" if name == "0" else f"adaptive_clip/{name}"
            # Without a limit yet there is nothing to draw.
            found[f"{place}/limit"] = torch.where(torch.isfinite(limit), limit, torch.nan)
            found[f"{place}/clipped"] = self._clipped[name]
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            name: {"clipped": self._clipped[name].clone()}
            | {key: value.clone() for key, value in state.items()}
            for name, state in self._states.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, saved in state.items():
            device = self._device_of(int(name))
            mine = {key: value.to(device).clone() for key, value in saved.items()}
            self._clipped[name] = mine.pop("clipped")
            self._states[name] = mine

    def _device_of(self, index: int) -> torch.device:
        groups = self._optimizers[index].param_groups
        device: torch.device = next(p.device for group in groups for p in group["params"])
        return device
