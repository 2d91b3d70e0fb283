"""Weights that start far too large."""

from __future__ import annotations

import torch
from torch import nn

from experiments.benchmark.faults.base import Fault, parameters


class LayerTooLarge(Fault):
    """One weight matrix starts `by` times too large."""

    def __init__(self, *, by: float, place: float) -> None:
        """`place` in 0..1 chooses which: 0 the first of the model, 1 the last."""
        self.by = by
        self.place = place

    @torch.no_grad()
    def model(self, model: nn.Module) -> nn.Module:
        matrices = parameters(model)
        _, weight = matrices[min(len(matrices) - 1, int(self.place * len(matrices)))]
        weight.mul_(self.by)
        return model


class EverythingTooLarge(Fault):
    """Every weight matrix starts `by` times too large."""

    def __init__(self, *, by: float) -> None:
        self.by = by

    @torch.no_grad()
    def model(self, model: nn.Module) -> nn.Module:
        for _, weight in parameters(model):
            weight.mul_(self.by)
        return model


class Unnormalised(Fault):
    """A transformer without norms, with wide weights: steep at the start, and calmer later."""

    def __init__(self, *, deviation: float) -> None:
        self.deviation = deviation

    def model(self, model: nn.Module) -> nn.Module:
        for name, module in list(model.named_modules()):
            if isinstance(module, nn.LayerNorm):
                model.set_submodule(name, nn.Identity())
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                branch_end = name.endswith((".out", ".down"))
                nn.init.normal_(module.weight, std=self.deviation / (2.0 if branch_end else 1.0))
        return model


class DeadUnits(Fault):
    """The biases of all hidden layers start so low that no unit ever fires."""

    watches_progress = True

    @torch.no_grad()
    def model(self, model: nn.Module) -> nn.Module:
        layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
        for layer in layers[:-1]:
            if layer.bias is not None:
                layer.bias.fill_(-100.0)
        return model
