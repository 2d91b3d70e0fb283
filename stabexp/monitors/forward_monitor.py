"""What monitors of the forward pass have in common: which modules, when, and under which names.

They look at the first forward pass of each module in a step that is due. An evaluation between two
steps makes no gradients and does not count.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import PrivateAttr
from torch import Tensor, nn
from torch.optim import Optimizer

from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.forward_watch import ForwardWatch


class ForwardMonitor(Monitor):
    """Measures some modules while they compute."""

    kinds: ClassVar[tuple[str, ...]]
    """What is measured of each module, in order."""

    _watch: ForwardWatch | None = PrivateAttr(default=None)
    _names: dict[nn.Module, str] = PrivateAttr(default_factory=dict)
    _found: dict[str, Tensor] = PrivateAttr(default_factory=dict)

    @abstractmethod
    def looks_at(self, module: nn.Module) -> bool:
        """Return whether a module is measured."""

    @abstractmethod
    def hang(self, watch: ForwardWatch, module: nn.Module) -> None:
        """Put the hooks up that measure a module."""

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer] = ()) -> None:
        self._watch = ForwardWatch(model)
        modules = self._watch.modules.items()
        self._names = {module: name or "model" for name, module in modules if self.looks_at(module)}

    def detach(self) -> None:
        if self._watch is not None:
            self._watch.take_down()

    def step_begins(self) -> None:
        assert self._watch is not None
        self._found = {}
        self._watch.take_down()
        if not self._watch.compiled:
            for module in self._names:
                self.hang(self._watch, module)

    def is_due(self, module: nn.Module) -> bool:
        """Return whether this is the first pass of a module in the step, and one that trains."""
        return torch.is_grad_enabled() and self._names[module] not in self._found

    def keep(self, name: str, figures: Sequence[Tensor]) -> None:
        """Keep what was measured of a module: a 0-d tensor for each of `kinds`, of one type."""
        self._found[name] = torch.stack(list(figures))

    def before_update(
        self, parameters: Sequence[nn.Parameter], gradient_norms: Tensor
    ) -> Measurements:
        self.detach()
        if not self._found:
            return {}
        names = tuple(f"layers/{name}/{kind}" for name in self._found for kind in self.kinds)
        device = gradient_norms.device
        values = torch.cat([each.to(device, torch.float64) for each in self._found.values()])
        self._found = {}
        return {names: values}
