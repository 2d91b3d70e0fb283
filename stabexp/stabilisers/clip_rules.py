"""How large a gradient may be, judged by those before it: three rules, all on the device.

A fixed limit is wrong for most of a training, for norms fall by a factor of ten while a model
learns. Each rule remembers earlier norms in a few small tensors and gives a limit for the next one,
without a host sync. A norm that is not finite leaves no trace, and a spike leaves one no larger
than its limit (`Quantile` excepted: one large value does not move a quantile).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

TALL = 4.0
"""A norm of more than so many medians says nothing about how norms usually vary."""

State = dict[str, Tensor]
"""Tensors by name: what a rule remembers."""


def wide_type(device: torch.device) -> torch.dtype:
    """Return the widest type to keep statistics in: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def clip_factors(norms: Tensor, limits: Tensor) -> Tensor:
    """Return what to multiply gradients by, as `torch.nn.utils.clip_grad_norm_` does, to the bit.

    Both of one shape. A norm that is not finite is left as it is: 0 × inf would be NaN, and hide
    from the loss scaler and from the detectors what happened.
    """
    # torch divides a number by a tensor like this, in two roundings.
    factors = torch.clamp((norms + 1e-6).reciprocal() * limits.to(norms.dtype), max=1.0)
    return torch.where(torch.isfinite(norms), factors, 1.0)


@dataclass(frozen=True, kw_only=True)
class MeanDeviation:
    """Mean plus `deviations` standard deviations of the last `window` norms (source row A16).

    Each norm counts as at most `TALL` medians: one burst among the first norms, which nothing has
    clipped yet, would otherwise raise the limit to its own height.
    """

    window: int
    warmup: int
    deviations: float

    def start(self, device: torch.device) -> State:
        """Return the state before the first norm."""
        return _empty_window(self.window, device)

    def limit(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the largest norm allowed now: 0-d, infinite until `warmup` norms were seen."""
        held = _held(state)
        count = held.sum()
        ordered = torch.where(held, state["norms"], torch.inf).sort().values
        median = ordered.gather(0, ((count - 1).clamp(min=0) // 2).reshape(1))
        norms = torch.where(held, torch.minimum(state["norms"], TALL * median), 0.0)
        mean = norms.sum() / count
        squares = torch.where(held, (norms - mean) ** 2, 0.0)
        limit = mean + self.deviations * (squares.sum() / (count - 1)).sqrt()
        return torch.where(state["count"] >= self.warmup, limit, torch.inf)

    def see(self, state: State, norm: Tensor, limit: Tensor) -> None:
        """Remember a norm, 0-d, if it is finite, as no larger than the limit that was in force."""
        _enter(state, torch.minimum(norm, limit), norm)


@dataclass(frozen=True, kw_only=True)
class Quantile:
    """The `quantile` of the last `window` norms.

    Source: Seetharaman et al. 2020, "AutoClip: Adaptive gradient clipping for source separation
    networks", which takes the 10th percentile of all norms so far.
    """

    window: int
    warmup: int
    quantile: float

    def start(self, device: torch.device) -> State:
        """Return the state before the first norm."""
        return _empty_window(self.window, device)

    def limit(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the largest norm allowed now: 0-d, infinite until `warmup` norms were seen."""
        held = _held(state)
        ordered = torch.where(held, state["norms"], torch.inf).sort().values
        place = self.quantile * (held.sum() - 1).clamp(min=0).to(ordered.dtype)
        low, high = place.floor(), place.ceil()
        below = ordered.gather(0, low.long().reshape(1))[0]
        above = ordered.gather(0, high.long().reshape(1))[0]
        limit = torch.where(high > low, below + (above - below) * (place - low), below)
        return torch.where(state["count"] >= self.warmup, limit, torch.inf)

    def see(self, state: State, norm: Tensor, limit: Tensor) -> None:
        """Remember a norm, 0-d, if it is finite, as it was."""
        _enter(state, norm, norm)


@dataclass(frozen=True, kw_only=True)
class ZScore:
    """A norm z > `deviations` deviations above its moving average goes to `deviations`² / z.

    So the larger the spike, the closer to the mean it is clipped.

    Source: Kumar et al. 2025, "ZClip: Adaptive spike mitigation for LLM pre-training", with
    α = 0.97 and a threshold of 2.5 after 25 steps.
    """

    memory: float
    warmup: int
    deviations: float

    def start(self, device: torch.device) -> State:
        """Return the state before the first norm."""
        wide = wide_type(device)
        return {
            "count": torch.zeros((), dtype=torch.int64, device=device),
            "sum": torch.zeros((), dtype=wide, device=device),
            "squares": torch.zeros((), dtype=wide, device=device),
            "mean": torch.zeros((), dtype=wide, device=device),
            "variance": torch.zeros((), dtype=wide, device=device),
        }

    def limit_for(self, state: Mapping[str, Tensor], norm: Tensor) -> Tensor:
        """Return what this norm may be: it depends on how far it lies above the mean."""
        deviation = state["variance"].sqrt()
        z = (norm.to(deviation.dtype) - state["mean"]) / (deviation + 1e-6)
        limit = state["mean"] + self.deviations**2 / z * deviation
        clips = (state["count"] >= self.warmup) & (z > self.deviations) & torch.isfinite(norm)
        return torch.where(clips, limit, torch.inf)

    def limit(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return the largest norm that is not clipped: 0-d."""
        limit = state["mean"] + self.deviations * (state["variance"].sqrt() + 1e-6)
        return torch.where(state["count"] >= self.warmup, limit, torch.inf)

    def see(self, state: State, norm: Tensor, limit: Tensor) -> None:
        """Remember a norm, 0-d, if it is finite, as no larger than its own limit."""
        mean, variance, count = state["mean"], state["variance"], state["count"]
        value = torch.minimum(norm.to(mean.dtype), limit.to(mean.dtype))
        finite = torch.isfinite(norm)
        # While it warms up, mean and variance are those of all norms so far.
        total = state["sum"] + value
        squares = state["squares"] + value**2
        first = total / (count + 1)
        early = (squares / (count + 1) - first**2).clamp(min=0)
        moved = self.memory * mean + (1 - self.memory) * value
        later = self.memory * variance + (1 - self.memory) * (value - moved) ** 2
        warm = count >= self.warmup
        state["sum"].copy_(torch.where(finite, total, state["sum"]))
        state["squares"].copy_(torch.where(finite, squares, state["squares"]))
        variance.copy_(torch.where(finite, torch.where(warm, later, early), variance))
        mean.copy_(torch.where(finite, torch.where(warm, moved, first), mean))
        count.add_(finite.long())


Rule = MeanDeviation | Quantile | ZScore


def _empty_window(size: int, device: torch.device) -> State:
    return {
        "norms": torch.zeros(size, dtype=wide_type(device), device=device),
        "count": torch.zeros((), dtype=torch.int64, device=device),
    }


def _held(state: Mapping[str, Tensor]) -> Tensor:
    norms = state["norms"]
    return torch.arange(len(norms), device=norms.device) < state["count"]


def _enter(state: State, value: Tensor, norm: Tensor) -> None:
    """Put a value in the place of the oldest one, if the norm is finite."""
    norms, count = state["norms"], state["count"]
    finite = torch.isfinite(norm)
    place = (count % len(norms)).reshape(1)
    kept = torch.where(finite, value.to(norms.dtype), norms.gather(0, place)[0])
    norms.scatter_(0, place, kept.reshape(1))
    count.add_(finite.long())
