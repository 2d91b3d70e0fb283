"""Mistakes in the training code itself, which no setting cures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from experiments.benchmark.faults.base import Fault, Moment, backward, step
from experiments.benchmark.faults.data import BLANK
from experiments.benchmark.programs.base import BenchmarkTask, Recipe, weighted

Plain = Callable[[nn.Module, tuple[Tensor, ...]], Tensor]


class NotZeroed(Fault):
    """From step `since` on the gradients are no longer set to zero after an update."""

    needs_loop = True

    def __init__(self, *, since: int) -> None:
        self.since = since

    def update(self, moment: Moment) -> None:
        backward(moment)
        step(moment)
        if moment.run.step < self.since:
            moment.optimizer.zero_grad(set_to_none=True)

    def strikes(self) -> int | None:
        return self.since


class NotDivided(Fault):
    """The gradients of the micro-batches are added, where their mean was meant."""

    needs_loop = True

    def __init__(self, *, micro_batches: int) -> None:
        self.micro_batches = micro_batches

    def recipe(self, recipe: Recipe) -> Recipe:
        size = max(1, recipe.batch // self.micro_batches)
        return replace(recipe, accumulate=self.micro_batches, batch=size)

    def update(self, moment: Moment) -> None:
        backward(moment, divided=1)
        if moment.index % moment.accumulate == 0:
            step(moment)
            moment.optimizer.zero_grad(set_to_none=True)


class LengthOfBlank(Fault):
    """A penalty on the length of the first layer's output: the gradient of √0 is infinite."""

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        lengths = _first_output(model, batch[0]).square().sum(1).sqrt()
        return plain(model, batch) + 1e-3 * lengths.mean()


class LogOfBlank(Fault):
    """where(s > 0, log s, 0): the branch not taken still sends back 0 × ∞."""

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        sums = _first_output(model, batch[0]).square().sum(1)
        logs = torch.where(sums > 0, sums.log(), torch.zeros_like(sums))
        return plain(model, batch) + 1e-3 * logs.mean()


def _first_output(model: nn.Module, inputs: Tensor) -> Tensor:
    layer = next(m for m in model.modules() if isinstance(m, nn.Linear))
    return inputs.flatten(1).to(layer.weight.dtype) @ layer.weight.T


class MaskedRow(Fault):
    """Attention over the tokens that are no padding: a sample of padding only has none."""

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        embedding = next(m for m in model.modules() if isinstance(m, nn.Embedding))
        states = embedding(batch[0])
        scores = states.mean(-1).masked_fill(batch[0] == BLANK, float("-inf"))
        pooled: Tensor = (scores.softmax(-1)[..., None] * states).sum(1)
        return plain(model, batch) + 1e-3 * pooled.square().mean()


class NoPositives(Fault):
    """The loss of one class is averaged over its samples in the batch, which may be none: 0 ÷ 0."""

    def __init__(self, *, label: int) -> None:
        self.label = label

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        logits, targets = task.outputs(model, batch)
        chosen = (targets == self.label).to(logits.dtype)
        losses = nn.functional.cross_entropy(logits, targets, reduction="none")
        return plain(model, batch) + 0.1 * (losses * chosen).sum() / chosen.sum()


class SoftmaxTwice(Fault):
    """Probabilities are given to a loss that expects logits."""

    watches_progress = True

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        logits, targets = task.outputs(model, batch)
        losses = nn.functional.cross_entropy(logits.softmax(-1), targets, reduction="none")
        return weighted(losses, batch[-1])


class Frozen(Fault):
    """Everything but the last layer's bias was left out of the optimizer's reach by mistake."""

    watches_progress = True

    def model(self, model: nn.Module) -> nn.Module:
        trainable = [p for p in model.parameters() if p.requires_grad]
        for parameter in trainable:
            if parameter is not trainable[-1]:
                parameter.requires_grad_(False)
        return model


class Broadcast(Fault):
    """Predictions (n, 1, d) minus targets (n, d) spread to (n, n, d): each meets every other."""

    watches_progress = True

    def loss(
        self, task: BenchmarkTask, model: nn.Module, batch: tuple[Tensor, ...], *, plain: Plain
    ) -> Tensor:
        images = batch[0].flatten(1)
        errors: Tensor = (model(batch[0])[:, None] - images).square().sum(-1)
        return errors.mean()
