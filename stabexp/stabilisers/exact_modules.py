"""Chosen modules compute in float32 while the rest of the model stays in half precision.

Hooks that sit closest to `forward` turn autocast off and widen inputs and half weights for the
length of the call. Under autocast the result stays float32: the next operation narrows it if it
must, so that a value too large for float16 is not lost on the way out. Where the weights themselves
are half, there is no such operation, and the result goes back to half.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stabexp.config import suggest
from stabexp.errors import ConfigError
from stabexp.state.module_state import uncompiled

HALF = (torch.float16, torch.bfloat16)

WHOLE = "*"
"""The name of the model itself."""


def named(
    model: nn.Module, name: str, *, parameters: bool = False, section: str = "interventions"
) -> nn.Module | None:
    """Return the module of this name, None when it names a parameter and that is allowed.

    `section` is where in the experiment file the name stands, for the message.

    Raises:
        ConfigError: If there is none.
    """
    model = uncompiled(model)
    modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
    if name in (WHOLE, ""):
        return model
    if name in modules:
        return modules[name]
    known = [path for path in modules if path]
    if parameters:
        own = [path for path, _ in model.named_parameters(remove_duplicate=False)]
        if name in own:
            return None
        known += own
    near = difflib.get_close_matches(name, known, n=1)
    outermost = [path for path in known if "." not in path]
    hint = suggest(name, near or outermost)
    raise ConfigError(f"{section}: the model has no module '{name}'; {hint}")


def longest_match(path: str, names: Iterable[str]) -> str | None:
    """Return the longest name that is `path` or one of the modules it lies in, None without one."""
    matches = [n for n in names if n in (WHOLE, path) or path.startswith(f"{n}.")]
    return max(matches, key=lambda name: (name != WHOLE, len(name)), default=None)


@dataclass(frozen=True)
class _Call:
    module: nn.Module
    autocast: AbstractContextManager[Any]
    narrow: torch.dtype | None
    lent: list[tuple[dict[str, Any], str, Tensor]]
    flat: list[tuple[nn.RNNBase, Any]]


class ExactModules:
    """Keeps modules in float32 until `remove`."""

    def __init__(
        self, model: nn.Module, names: Sequence[str], *, section: str = "interventions"
    ) -> None:
        """Raises ConfigError, which names `section`, when the model has no such module."""
        # Those inside too: a list of blocks is never called itself, its blocks are.
        chosen = [module for name in names if (module := named(model, name, section=section))]
        modules = {id(inner): inner for module in chosen for inner in module.modules()}
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._kind = device.type
        self._calls: list[_Call] = []
        self._handles = []
        for module in modules.values():
            self._handles += [
                module.register_forward_pre_hook(self._enter, with_kwargs=True),
                module.register_forward_hook(self._leave, prepend=True, always_call=True),
            ]

    def remove(self) -> None:
        """Take the hooks back."""
        for handle in self._handles:
            handle.remove()

    def _enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        cast = torch.is_autocast_enabled(self._kind)
        off: AbstractContextManager[Any] = (
            torch.autocast(self._kind, enabled=False) if cast else nullcontext()
        )
        narrow = None if cast else _half_type((args, kwargs), module)
        off.__enter__()
        lent, flat = _widen_weights(module)
        self._calls.append(_Call(module, off, narrow, lent, flat))
        return mapped(args, _wide), mapped(kwargs, _wide)

    def _leave(self, module: nn.Module, args: Any, result: Any) -> Any:
        # Called after an exception too, even one that came before `_enter`.
        if not self._calls or self._calls[-1].module is not module:
            return result
        call = self._calls.pop()
        _narrow_weights(call)
        call.autocast.__exit__(None, None, None)
        narrow = call.narrow
        if narrow is None:
            return result
        return mapped(result, lambda t: t.to(narrow) if t.dtype == torch.float32 else t)


def _widen_weights(
    module: nn.Module,
) -> tuple[list[tuple[dict[str, Any], str, Tensor]], list[tuple[nn.RNNBase, Any]]]:
    """Put float32 versions, part of the graph, in place of half parameters and buffers."""
    lent: list[tuple[dict[str, Any], str, Tensor]] = []
    flat: list[tuple[nn.RNNBase, Any]] = []
    for inner in module.modules():
        before = len(lent)
        for holder in (inner._parameters, inner._buffers):
            for key, value in list(holder.items()):
                if value is not None and value.dtype in HALF:
                    lent.append((holder, key, value))
                    holder[key] = value.float()  # type: ignore[assignment]
        if isinstance(inner, nn.RNNBase) and len(lent) > before:
            flat.append((inner, inner._flat_weights))
            names: list[str] = inner._flat_weights_names
            inner._flat_weights = [getattr(inner, name) for name in names]
    return lent, flat


@torch.no_grad()
def _narrow_weights(call: _Call) -> None:
    for holder, key, own in reversed(call.lent):
        wide = holder[key]
        holder[key] = own
        if not isinstance(own, nn.Parameter) and wide is not None and not wide.requires_grad:
            own.copy_(wide)  # running statistics moved during the call
    for rnn, weights in call.flat:
        rnn._flat_weights = weights


def _half_type(inputs: Any, module: nn.Module) -> torch.dtype | None:
    """Return the half format a call outside autocast is in, None when it is in no half format."""
    candidates = (*_tensors(inputs), *module.parameters())
    return next((tensor.dtype for tensor in candidates if tensor.dtype in HALF), None)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return nested lists, tuples and dicts with every tensor changed; the same object if none."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is dict:
        items = {key: mapped(item, change) for key, item in value.items()}
        return items if any(items[key] is not value[key] for key in items) else value
    if isinstance(value, (list, tuple)):
        parts = [mapped(item, change) for item in value]
        if all(part is item for part, item in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
