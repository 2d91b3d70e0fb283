"""Half precision that does not hold what the training needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from experiments.benchmark.faults.base import Fault
from experiments.benchmark.programs.base import Recipe


class Overflow(Fault):
    """An activation is held `scale` times too large, as in networks without a norm at that place.

    It is divided again at once, so in float32 nothing changes; float16 ends at 65,504.
    """

    def __init__(self, *, module: str, bears: float, precision: str) -> None:
        """The output of `module` overflows in float16 once it passes `bears`."""
        self.module = module
        self.scale = 2.0 ** round(torch.tensor(65504 / bears).log2().item())
        self.precision = precision

    def recipe(self, recipe: Recipe) -> Recipe:
        return replace(recipe, precision=self.precision)

    def model(self, model: nn.Module) -> nn.Module:
        def widen(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return (output * self.scale) / self.scale

        model.get_submodule(self.module).register_forward_hook(widen)
        return model
