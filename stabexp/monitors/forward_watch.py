"""Hooks in a model's modules that are there for the forward passes of one step only.

A hook that always hangs in a module costs on every step, also when nothing is due. In compiled code
a hook would mean compiling again, so a model with compiled parts is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class ForwardWatch:
    """Puts hooks up when a step begins and takes them down when its gradients are there."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = dict(model.named_modules())
        self.compiled = any(
            getattr(module, "_compiled_call_impl", None) is not None
            or type(module).__name__ == "OptimizedModule"
            for module in self.modules.values()
        )
        """Whether the model cannot be watched without changing it."""
        self._handles: list[Any] = []

    def before(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call `hook(module, inputs)` before the module's forward."""
        self._handles.append(module.register_forward_pre_hook(hook))

    def after(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call `hook(module, inputs, output)` after the module's forward, also when it raised."""
        self._handles.append(module.register_forward_hook(hook, always_call=True))

    def take_down(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def tensors_in(output: Any) -> list[Tensor]:
    """Return the floating-point tensors of a module's output that have elements."""
    if isinstance(output, Tensor):
        found = [output]
    elif isinstance(output, (tuple, list)):
        found = [item for item in output if isinstance(item, Tensor)]
    elif isinstance(output, dict):
        found = [item for item in output.values() if isinstance(item, Tensor)]
    else:
        found = []
    return [tensor for tensor in found if tensor.is_floating_point() and tensor.numel()]
