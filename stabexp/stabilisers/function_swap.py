"""Puts other functions in place of torch's own while a loop works on a batch.

Whatever a model calls, `torch.softmax(x, 1)`, `x.softmax(1)` or `nn.Softmax(1)(x)`, torch offers to
whoever asks for it before it computes. A function that is put in place is called with the same
arguments; inside it, torch's own functions are torch's own. Every call of a torch function costs a
look into a table then, about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]


class FunctionSwap(TorchFunctionMode):
    """Calls `swapped[function](function, *args, **kwargs)` in place of the function."""

    def __init__(self, swapped: Mapping[Function, Function]) -> None:
        super().__init__()
        self._swapped = swapped

    def __torch_function__(
        self, func: Function, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        other = self._swapped.get(func)
        if other is None:
            return func(*args, **(kwargs or {}))
        return other(func, *args, **(kwargs or {}))
