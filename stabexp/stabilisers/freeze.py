"""Keeps parts of a model as they are, such as a diffusion model's VAE.

For the length of each batch their parameters need no gradient, so backward does not go through them
and the optimizer passes them by: no update, no decay, no momentum. In evaluation mode their dropout
and running statistics stand still as well. Source row B16.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from stabexp.errors import ConfigError
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.compiled import run_eagerly
from stabexp.stabilisers.frozen import Frozen, check_parallel
from stabexp.stabilisers.model_parts import matches, parameters_of
from stabexp.state.module_state import uncompiled


class Freeze(Stabiliser):
    """Trains all but some modules, which stay bit for bit as they are."""

    modules: list[str] = Field(min_length=1)
    """Names or patterns of modules and parameters: vae, blocks.0, unet.*conv*."""

    evaluating: bool = True
    """Whether the frozen modules compute in evaluation mode."""

    _frozen: Frozen = PrivateAttr(default_factory=Frozen)
    _parameters: list[Tensor] = PrivateAttr(default_factory=list)
    _run: ExitStack = PrivateAttr(default_factory=ExitStack)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _handles: list[RemovableHandle] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Find what stays as it is.

        Raises:
            ConfigError: If a pattern names no parameter, or nothing would be left to train.
        """
        place = "stabilisers.freeze.modules"
        check_parallel(model, "stabilisers.freeze")
        self._parameters = list(parameters_of(model, self.modules, section=place).values())
        frozen = set(map(id, self._parameters))
        if all(id(p) in frozen for p in model.parameters() if p.requires_grad):
            raise ConfigError(f"{place}: every parameter is frozen, so nothing would train")
        modules = [
            module
            for name, module in uncompiled(model).named_modules()
            if self.evaluating and any(matches(name, pattern) for pattern in self.modules)
        ]

        self._events = run_eagerly(model, self._run, step=step) if modules else []
        # At every call: a trainer says model.train() before each step.
        self._handles = [
            module.register_forward_pre_hook(lambda called, _: self._frozen.evaluate(called))
            for module in modules
        ]

    def batch_begins(self, step: int) -> None:
        self._frozen.hold(self._parameters)

    def batch_ends(self) -> None:
        self._frozen.release()

    def detach(self) -> None:
        self._run.close()
        self._frozen.release()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events
