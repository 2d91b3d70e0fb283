"""A fault: what it changes in a training that is known to work, and when it strikes.

Faults hang on sample ids or on the training's own state, never on how often a function was called:
so a replay that starts in the middle meets them at the same step, and one with another order of the
data meets them where its samples come up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.benchmark.programs.base import BenchmarkTask, Recipe
from stabexp.tasks.data import InMemory
from stabexp.training.data import SampleOrder
from stabexp.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a loop holds when a batch's loss is known."""

    run: Run
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    loss: Tensor
    index: int
    """Which (micro-)batch since the run or the replay began, from 1."""
    accumulate: int


class Fault:
    """Nothing is wrong; subclasses change one thing."""

    needs_loop: bool = False
    """Whether it sits in the training loop, so that the program is a function, not a task."""

    watches_progress: bool = False
    """Whether only a run that is expected to learn can show it."""

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the settings with the fault in them."""
        return recipe

    def dataset(self, data: InMemory) -> InMemory:
        """Return the samples with the fault in them."""
        return data

    def model(self, model: nn.Module) -> nn.Module:
        """Return the new model with the fault in it."""
        return model

    def loss(
        self,
        task: BenchmarkTask,
        model: nn.Module,
        batch: tuple[Tensor, ...],
        *,
        plain: Callable[[nn.Module, tuple[Tensor, ...]], Tensor],
    ) -> Tensor:
        """Return the loss of a batch; `plain` is the one that is right."""
        return plain(model, batch)

    def rate(self, step: int, *, factor: float) -> float:
        """Return the factor on the base rate at `step`; `factor` is what the schedule says."""
        return factor

    def update(self, moment: Moment) -> None:
        """Make an update from a loss: what `loop.train` does with every batch."""
        descend(moment)

    def strikes(self) -> int | None:
        """Return the step at which it first acts, None when there is no such step."""
        return None

    def samples(self) -> tuple[int, ...]:
        """Return the ids of the samples it hangs on."""
        return ()


class Together(Fault):
    """Several faults in one program."""

    def __init__(self, *parts: Fault) -> None:
        self.parts = parts
        self.needs_loop = any(part.needs_loop for part in parts)
        self.watches_progress = any(part.watches_progress for part in parts)

    def recipe(self, recipe: Recipe) -> Recipe:
        for part in self.parts:
            recipe = part.recipe(recipe)
        return recipe

    def dataset(self, data: InMemory) -> InMemory:
        for part in self.parts:
            data = part.dataset(data)
        return data

    def model(self, model: nn.Module) -> nn.Module:
        for part in self.parts:
            model = part.model(model)
        return model

    def loss(
        self,
        task: BenchmarkTask,
        model: nn.Module,
        batch: tuple[Tensor, ...],
        *,
        plain: Callable[[nn.Module, tuple[Tensor, ...]], Tensor],
    ) -> Tensor:
        for part in self.parts:
            plain = _bound(part, task, plain)
        return plain(model, batch)

    def rate(self, step: int, *, factor: float) -> float:
        for part in self.parts:
            factor = part.rate(step, factor=factor)
        return factor

    def update(self, moment: Moment) -> None:
        own = [part for part in self.parts if type(part).update is not Fault.update]
        assert len(own) <= 1, "two faults cannot both replace the update"
        (own[0] if own else Fault()).update(moment)

    def strikes(self) -> int | None:
        steps = [step for part in self.parts if (step := part.strikes()) is not None]
        return min(steps, default=None)

    def samples(self) -> tuple[int, ...]:
        return tuple(sample for part in self.parts for sample in part.samples())


def _bound(
    part: Fault, task: BenchmarkTask, plain: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    return lambda model, batch: part.loss(task, model, batch, plain=plain)


def backward(moment: Moment, *, divided: int | None = None) -> None:
    """Propagate the loss back, divided by the number of micro-batches and scaled as it must be."""
    loss = moment.loss / (moment.accumulate if divided is None else divided)
    (loss if moment.scaler is None else moment.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]


def step(moment: Moment) -> None:
    """Update the parameters from the gradients, through the scaler where there is one."""
    if moment.scaler is None:
        moment.optimizer.step()
    else:
        moment.scaler.step(moment.optimizer)
        moment.scaler.update()


def descend(moment: Moment) -> None:
    """Make the update as it is meant: backward, step, zero."""
    backward(moment)
    if moment.index % moment.accumulate == 0:
        step(moment)
        moment.optimizer.zero_grad(set_to_none=True)


def between(u: float, low: float, high: float, *, log: bool = False) -> float:
    """Return the value at share `u` of the way from `low` to `high`."""
    return low * (high / low) ** u if log else low + u * (high - low)


def samples_at(at: int, *, size: int, recipe: Recipe, seed: int, count: int = 1) -> tuple[int, ...]:
    """Return ids that the run's order shows for the first time at step `at`, in its batch."""
    per_step = recipe.batch * recipe.accumulate
    if (at + 1) * per_step > size:
        raise ValueError(f"step {at} lies behind the first pass over {size} samples")
    order = SampleOrder(size, seed=seed)
    return tuple(order.ids(at * per_step + per_step // 2, count))


def columns(data: InMemory) -> list[Tensor]:
    """Return copies of the table's columns, to be written to."""
    return [column.clone() for column in data.batch(range(len(data)))]


def parameters(model: nn.Module) -> Sequence[tuple[str, Any]]:
    """Return the trainable weight matrices by name, in the model's order."""
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad and p.dim() > 1]
