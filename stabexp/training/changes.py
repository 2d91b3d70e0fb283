"""Puts a replay's interventions in force, each at the place where it takes hold.

At the start (initial weights, exact modules, compiled code), around the loop's work on a batch
(inputs, safe operations) and around every update (`update`, which the optimizer boundary calls).
Whatever is changed is taken back; a run without interventions is not touched at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from stabexp.interventions import Intervention, OptimizerState
from stabexp.stabilisers.exact_modules import ExactModules
from stabexp.training.changes_inputs import with_standard_inputs
from stabexp.training.changes_loss import LossClamp
from stabexp.training.changes_state import empty_state
from stabexp.training.changes_update import UpdateChanges


class Changes:
    """Everything a run's interventions change in model, batches and updates."""

    def __init__(self, interventions: Sequence[Intervention] = ()) -> None:
        self._interventions = interventions
        self._updates: dict[int, UpdateChanges] = {}
        self._initial_scale = math.prod(item.initial_scale() for item in interventions)
        self._narrows = any(item.narrows_weights() for item in interventions)
        self._exact = [name for item in interventions for name in item.exact_modules()]
        self._safe = [name for item in interventions for name in item.safe_operations()]
        self._eager = any(item.eager() for item in interventions)
        self._standardises = any(item.standardises_inputs() for item in interventions)
        self._empties_state = any(
            isinstance(item, OptimizerState) and item.empties_optimizer_state()
            for item in interventions
        )
        limit = min((item.loss_limit() for item in interventions), default=math.inf)
        self._clamp = LossClamp(limit) if limit < math.inf else None
        self._modes: list[AbstractContextManager[Any]] = []
        self._run = ExitStack()
        self._batch = ExitStack()

    def update_of(self, optimizer: Optimizer) -> UpdateChanges:
        """Return what is different about every update of one optimizer."""
        if id(optimizer) not in self._updates:
            self._updates[id(optimizer)] = UpdateChanges(self._interventions)
        return self._updates[id(optimizer)]

    def left_out(self, step: int) -> bool:
        """Return whether the update of `step` is not applied at all."""
        return any(item.freezes() or item.skips_update(step) for item in self._interventions)

    def begin(
        self, model: nn.Module, optimizers: Optimizer | Sequence[Optimizer], *, scratch: bool
    ) -> None:
        """Change what is changed once; call it when the state was restored.

        Args:
            model: The model as the loop uses it, compiled or not.
            optimizers: The optimizers the loop steps.
            scratch: Whether the weights are those the training started with.

        Raises:
            ConfigError: If a dose names a module or an option that is not there.
        """
        for optimizer in [optimizers] if isinstance(optimizers, Optimizer) else optimizers:
            if self._empties_state:
                empty_state(optimizer)
            self.update_of(optimizer).begin(model, optimizer)
        if self._safe:
            self._modes = _safe_modes(self._safe)
        if self._exact:
            self._run.callback(ExactModules(model, self._exact).remove)
        if self._eager or self._exact or self._safe:
            # Compiled code would not see hooks and modes that came after it.
            self._run.enter_context(torch.compiler.set_stance("force_eager"))
        if scratch and self._initial_scale != 1.0:
            scale_weights(model, self._initial_scale)
        if scratch and self._narrows:
            narrow_weights(model)

    def batch_begins(self, batch: Any) -> Any:
        """Return the batch the loop is to have, and put in force what holds while it works."""
        for mode in self._modes:
            self._batch.enter_context(mode)
        return with_standard_inputs(batch) if self._standardises else batch

    def logged(self, loss: Tensor) -> None:
        """Act on the loss of a batch, whose gradient has not been asked for yet."""
        if self._clamp is not None:
            self._clamp.watch(loss)

    def update_ends(self) -> None:
        """See that what was changed took hold in this step.

        Raises:
            NotReplayableError: If it did not, so that the step is not what was asked for.
        """
        if self._clamp is not None:
            self._clamp.update_ends()

    def batch_ends(self) -> None:
        """Take back what `batch_begins` put in force; harmless when nothing is."""
        self._batch.close()

    def end(self) -> None:
        """Take everything back."""
        self._batch.close()
        self._run.close()
        if self._clamp is not None:
            self._clamp.remove()


@torch.no_grad()
def scale_weights(model: nn.Module, factor: float) -> None:
    """Multiply every trained weight of two or more dimensions, tied ones once."""
    for parameter in model.parameters():
        if parameter.requires_grad and not is_lazy(parameter) and parameter.dim() >= 2:
            parameter.mul_(factor)


TOO_WIDE = 3.0
"""Deviation over the usual one above which a weight is too wide."""


@torch.no_grad()
def narrow_weights(model: nn.Module) -> None:
    """Scale trained weights that are too wide to a deviation of 1/sqrt(fan-in).

    Fan-in is how many elements go into one output: all dimensions but the first.
    """
    for parameter in model.parameters():
        if not parameter.requires_grad or is_lazy(parameter) or parameter.dim() < 2:
            continue
        if parameter.numel() < 2:
            continue
        usual = parameter[0].numel() ** -0.5
        deviation = float(parameter.double().std())
        if math.isfinite(deviation) and deviation > TOO_WIDE * usual:
            parameter.mul_(usual / deviation)


def _safe_modes(names: Sequence[str]) -> list[AbstractContextManager[Any]]:
    """Return one mode per place in the code, and one for the operations named without a place."""
    from stabexp.training.safe_operations import SafeOperations

    by_source: dict[str, list[str]] = {}
    for name in names:
        operation, _, source = name.partition("@")
        by_source.setdefault(source, []).append(operation)
    return [
        SafeOperations(operations, sources=(source,) if source else ())
        for source, operations in by_source.items()
    ]
