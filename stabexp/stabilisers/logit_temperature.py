"""Divides the logits by a temperature while the model trains.

Above 1 the gradients of the loss are smaller and a confident mistake costs less; below 1 they are
larger. Only the training sees it: in evaluation mode the logits are the model's own, so evaluation
losses of several temperatures can be compared. Source row B13.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.errors import ConfigError, TrainingError
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.compiled import run_eagerly
from stabexp.stabilisers.exact_modules import named
from stabexp.state.module_state import uncompiled


class LogitTemperature(Stabiliser):
    """Divides what a module gives, the logits, by a temperature in training mode."""

    temperature: float = Field(1.2, gt=0)
    """What the logits are divided by; 0.7 to 1.3 is usual."""

    module: str = Field("")
    """Name of the module that gives the logits; default: the last one with parameters."""

    _handle: Any = PrivateAttr(None)
    _run: ExitStack = PrivateAttr(default_factory=ExitStack)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Raises ConfigError when the model has no such module."""
        place = "stabilisers.logit_temperature.module"
        name = self.module or _last(uncompiled(model))
        module = named(model, name, section=place) if name else None
        if module is None:
            raise ConfigError(f"{place}: no module of the model has parameters; name one")
        self._handle = module.register_forward_hook(self._cool)
        message = f"divides the output of {name} by {self.temperature:g}"
        self._events = run_eagerly(model, self._run, step=step)
        self._events += [] if step else [{"message": message}]

    def detach(self) -> None:
        self._run.close()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def _cool(self, module: nn.Module, inputs: Any, output: Any) -> Any:
        if not module.training or self.temperature == 1.0:
            return output
        if not isinstance(output, Tensor) or not output.is_floating_point():
            raise TrainingError(
                f"stabilisers.logit_temperature: a {type(module).__name__} gives a "
                f"{type(output).__name__}, expected a tensor of logits; name the module that "
                "gives them under module:"
            )
        return output / self.temperature


def _last(model: nn.Module) -> str:
    """Return the name of the last module with parameters of its own."""
    own = [
        name
        for name, m in model.named_modules()
        if next(m.parameters(recurse=False), None) is not None
    ]
    return own[-1] if own else ""
