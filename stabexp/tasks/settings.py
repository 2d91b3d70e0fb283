"""Optimizers and learning-rate schedules by name, as an experiment file sets them.

A schedule is a pure function of the step: the factor on the base rate. So a replay can ask what the
rate will be at any step without building an optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from stabexp.config import Settings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR

_BETAS = (0.9, 0.999)
_EPS = 1e-8


class OptimizerSettings(Settings):
    """How gradients become updates."""

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    """Which optimizer, as torch.optim has it."""

    lr: float = Field(1e-3, gt=0)
    """Base learning rate; the schedule multiplies it."""

    momentum: float = Field(0.0, ge=0, lt=1)
    """sgd only: share of the last update kept."""

    nesterov: bool = False
    """sgd only: look ahead along the momentum."""

    betas: tuple[float, float] = _BETAS
    """adam and adamw only: decay of the first and the second moment, each in [0, 1)."""

    eps: float = Field(_EPS, ge=0)
    """adam and adamw only: added to the root of the second moment; 1e-8 is 0 in fp16."""

    weight_decay: float = Field(0.0, ge=0)
    """Pull towards zero: added to the gradient by sgd and adam, applied to the weights by adamw."""

    foreach: bool | None = None
    """Update all parameters in few calls; None lets torch choose."""

    fused: bool | None = None
    """Update in one compiled call; None lets torch choose."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {list(self.betas)} must lie in [0, 1); usual: [0.9, 0.999]")
        if self.name == "sgd":
            if self.betas != _BETAS:
                raise ValueError("betas belong to adam and adamw; for sgd set momentum")
            if self.eps != _EPS:
                raise ValueError("eps belongs to adam and adamw; remove it")
            if self.nesterov and not self.momentum:
                raise ValueError("nesterov needs momentum; set momentum: 0.9 or nesterov: false")
        elif self.momentum or self.nesterov:
            key = "momentum" if self.momentum else "nesterov"
            raise ValueError(f"{key} belongs to sgd; for {self.name} set betas, or name: sgd")
        if self.foreach and self.fused:
            raise ValueError("foreach and fused exclude each other; keep one")
        return self

    def build(self, params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> Optimizer:
        """Return the optimizer over `params`: tensors, or groups as torch takes them."""
        from torch import optim

        if self.name == "sgd":
            return optim.SGD(
                params,
                lr=self.lr,
                momentum=self.momentum,
                nesterov=self.nesterov,
                weight_decay=self.weight_decay,
                foreach=self.foreach,
                fused=self.fused,
            )
        kind = optim.Adam if self.name == "adam" else optim.AdamW
        return kind(
            params,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            foreach=self.foreach,
            fused=self.fused,
        )


class ScheduleSettings(Settings):
    """How the learning rate moves over the run."""

    name: Literal["constant", "linear", "cosine", "one_cycle"] = "constant"
    """The shape after warmup; one_cycle rises and falls by itself."""

    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises in a straight line to its base value."""

    min_ratio: float = Field(0.0, ge=0, le=1)
    """Factor at the end of linear, cosine and one_cycle."""

    peak: float = Field(0.3, gt=0, lt=1)
    """one_cycle only: share of the run at which the rate is highest."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.name == "one_cycle" and self.warmup_steps:
            raise ValueError("one_cycle has its own rise; set peak instead of warmup_steps")
        return self

    def factor(self, step: int, total_steps: int) -> float:
        """Return the factor on the base rate at `step`, 0 to 1.

        During warmup it is (step + 1) / warmup_steps. After that the shape runs from 1 at step
        `warmup_steps` to `min_ratio` at `total_steps`, one past the last step, and stays there.
        one_cycle starts at the larger of 1/25 (as torch's OneCycleLR) and `min_ratio`.
        """
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        length = max(1, total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / length)
        match self.name:
            case "constant":
                return 1.0
            case "linear":
                return 1 - (1 - self.min_ratio) * progress
            case "cosine":
                return _cosine(1.0, self.min_ratio, progress)
            case "one_cycle":
                if progress < self.peak:
                    return _cosine(max(1 / 25, self.min_ratio), 1.0, progress / self.peak)
                return _cosine(1.0, self.min_ratio, (progress - self.peak) / (1 - self.peak))

    def build(self, optimizer: Optimizer, total_steps: int) -> LambdaLR:
        """Return the scheduler; it sets the rate of step 0 now and is stepped once per update."""
        from torch.optim.lr_scheduler import LambdaLR

        return LambdaLR(optimizer, partial(self.factor, total_steps=total_steps))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
