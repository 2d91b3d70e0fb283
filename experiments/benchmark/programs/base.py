"""What all programs share: a weight for every sample, and a recipe that is known to train.

Every sample carries a weight of one. So "this sample counts ten thousand times" can go wrong in a
program on text just as "this image is ten thousand times too bright" can in one on images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from stabexp.tasks.base import Dataset, Task, in_model_dtype


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a training, as its experiment file will name them."""

    optimizer: Mapping[str, Any]
    """Keys of the experiment file's `optimizer` section."""
    warmup: int = 20
    clip: float | None = None
    precision: str = "fp32"
    batch: int = 32
    accumulate: int = 1
    steps: int = 500
    expected: float | None = None
    """Loss that healthy training reaches by step `expected_by`; None asks for nothing."""
    expected_by: int = 200
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the experiment file."""

    @property
    def lr(self) -> float:
        """The base learning rate."""
        return float(self.optimizer["lr"])


class BenchmarkTask(Task):
    """A family: data, model and loss, and the recipe that trains it."""

    healthy: ClassVar[Recipe]
    """Settings that train through on every seed."""

    wide: ClassVar[str] = ""
    """Name of a linear module whose output grows in training, for faults of range."""

    samples: ClassVar[int] = 16_173
    """Size of the dataset."""

    def outputs(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return logits (n, classes) and targets (n,) of a batch (inputs, targets, weights)."""
        inputs, targets, _ = batch
        logits = model(in_model_dtype(model, inputs))
        return logits.flatten(0, -2), targets.flatten()

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        logits, targets = self.outputs(model, batch)
        return weighted(F.cross_entropy(logits, targets, reduction="none"), batch[-1])


def weighted(losses: Tensor, weights: Tensor) -> Tensor:
    """Return the mean loss: `losses` (n,) hold as many entries per sample as `weights` (b,) fit."""
    rows = losses.view(len(weights), -1).mean(1)
    return (rows * weights.to(rows.dtype)).mean()


__all__ = ["BenchmarkTask", "Dataset", "Recipe", "weighted"]
