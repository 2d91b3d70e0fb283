"""Keeps only what goes into each block, and computes the block again on the way back.

The largest part of a training's memory is what backward needs from forward. With this only the
inputs of each block are kept, at the price of one more forward pass. The result is the same bit for
bit: dropout draws the same numbers the second time, autocast is as it was, and running statistics
are not counted twice. Source row A14; Chen et al. 2016, "Training Deep Nets with Sublinear Memory
Cost".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from stabexp.errors import ConfigError
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.compiled import run_eagerly
from stabexp.stabilisers.model_parts import blocks, matches
from stabexp.state.module_state import uncompiled


class ActivationCheckpointing(Stabiliser):
    """Computes blocks again in the backward pass instead of keeping their activations."""

    modules: list[str] = Field([])
    """Names or patterns of modules to compute again; default: the model's repeated blocks."""

    _exchanged: list[tuple[nn.Module, type[nn.Module]]] = PrivateAttr(default_factory=list)
    _run: ExitStack = PrivateAttr(default_factory=ExitStack)
    _events: list[dict[str, Any]] = PrivateAttr(default_factory=list)

    def attach(self, model: nn.Module, optimizers: Sequence[Optimizer], *, step: int) -> None:
        """Exchange the blocks' forward.

        Raises:
            ConfigError: If there is no such module, or the model has no repeated blocks.
        """
        self._events = run_eagerly(model, self._run, step=step)
        own = uncompiled(model)
        names = self._chosen(own)
        for name in names:
            module = own.get_submodule(name)
            if "forward" in vars(module):
                raise ConfigError(
                    f"stabilisers.activation_checkpointing: something has exchanged the forward of "
                    f"'{name}' already; name other modules under modules:"
                )
            self._exchanged.append((module, type(module)))
            # A class of its own, not an attribute: a deep copy of the model computes with the copy.
            module.__class__ = _computed_again(type(module))

    def _chosen(self, model: nn.Module) -> list[str]:
        place = "stabilisers.activation_checkpointing.modules"
        if not self.modules:
            if found := blocks(model):
                return found
            raise ConfigError(
                f"{place}: the model has no list of blocks; name modules, such as "
                f"{', '.join(name for name, _ in model.named_children()) or 'those inside it'}"
            )
        every = [name for name, _ in model.named_modules() if name]
        for pattern in self.modules:
            if not any(matches(name, pattern) for name in every):
                raise ConfigError(f"{place}: the model has no module '{pattern}'")
        chosen = [n for n in every if any(matches(n, pattern) for pattern in self.modules)]
        # Not what is inside another: that would be computed three times.
        return [n for n in chosen if not any(n.startswith(f"{other}.") for other in chosen)]

    def detach(self) -> None:
        self._run.close()
        for module, kind in self._exchanged:
            module.__class__ = kind
        self._exchanged = []

    def drain_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events


def _computed_again(kind: type[nn.Module]) -> type[nn.Module]:
    """Return the class whose forward is computed again in the backward pass."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        once = partial(kind.forward, self)
        if not torch.is_grad_enabled():
            return once(*args, **kwargs)
        return checkpoint(
            once, *args, use_reentrant=False, context_fn=partial(_contexts, self), **kwargs
        )

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _contexts(module: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return nullcontext(), _buffers_kept(module)


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Let a second forward pass write running statistics into copies."""
    own = [(m, key, b) for m in module.modules() for key, b in m._buffers.items() if b is not None]
    try:
        for holder, key, buffer in own:
            holder._buffers[key] = buffer.clone()
        yield
    finally:
        for holder, key, buffer in own:
            holder._buffers[key] = buffer
