"""Writes down a digest of every tensor of a step, in the order in which they come into being.

Two replays that part in their losses parted somewhere before. With the batch, every module's
output, every gradient and all that an update leaves, the first tensor that differs is the place:
what it was computed from is still the same in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stabexp.instruments.base import Instrument, Watched
from stabexp.state.hashing import parameter_digest

_Entry = tuple[int, str, str, str, Tensor | str]
"""Micro-batch, phase, name, form, digest: a 0-d tensor while it is on the device."""


class _Watching:
    """What one replay has shown so far."""

    def __init__(self) -> None:
        self.watched: Watched | None = None
        self.names: dict[Tensor, str] = {}
        self.handles: list[RemovableHandle] = []
        self.steps: dict[int, list[list[Any]]] = {}
        self._entries: list[_Entry] = []
        self._step: int | None = None
        self._batch = 0
        self._on = False

    def begin(self, step: int, *, on: bool) -> None:
        """Get ready for a (micro-)batch."""
        self._batch = self._batch + 1 if step == self._step else 0
        if step != self._step:
            self._entries = []
        self._step, self._on = step, on

    def add(self, phase: str, name: str, value: Any) -> None:
        """Enter a tensor, or a plain value, at this point of the step."""
        if self._on:
            self._entries.append((self._batch, phase, name, *_digest(value)))

    def before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Enter what the update is made from."""
        for parameter, name in self.names.items():
            if parameter.grad is not None:
                self.add("gradients", name, parameter.grad)
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    self.add("settings", f"groups.{index}.{key}", value)

    def after_update(self, step: int) -> None:
        """Enter what the update left, and bring all digests of the step to the host."""
        assert self.watched is not None
        for parameter, name in self.names.items():
            state = self.watched.optimizer.state.get(parameter, {})
            for key in sorted(state, key=str):
                self.add("optimizer", f"{name}.{key}", state[key])
        if self.watched.scaler is not None and self.watched.scaler.is_enabled():
            self.add("scaler", "scale", self.watched.scaler.get_scale())
        for parameter, name in self.names.items():
            self.add("parameters", name, parameter)
        for name, buffer in self.watched.model.named_buffers():
            self.add("buffers", name, buffer)
        self.steps[step] = _fetched(self._entries)
        self._entries = []


class TensorDigests(Instrument):
    """Digests the tensors of every step in order; `bisection.tensor_difference` compares them."""

    first_step: int = Field(0, ge=0)
    """First step to watch."""

    last_step: int | None = Field(None, ge=0)
    """Last step to watch; null watches to the end."""

    _watching: _Watching = PrivateAttr(default_factory=_Watching)

    def attach(self, watched: Watched) -> None:
        state = self._watching
        state.watched = watched
        state.names = _names(watched)
        for name, module in _hookable(watched.model):
            state.handles.append(module.register_forward_hook(_output_hook(state, name)))
        for parameter, name in state.names.items():
            if parameter.requires_grad and parameter.is_leaf:
                hook = _gradient_hook(state, name)
                register: Any = parameter.register_post_accumulate_grad_hook
                state.handles.append(register(hook))
        state.handles.append(watched.optimizer.register_step_pre_hook(state.before_update))

    def batch_begins(self, step: int, ids: Sequence[int], batch: Any) -> None:
        state = self._watching
        state.begin(step, on=self._is_watched(step))
        for name, tensor in _tensors(batch, ""):
            state.add("input", name or "0", tensor)

    def logged(self, loss: Tensor) -> None:
        self._watching.add("loss", "loss", loss)

    def update_ends(self, step: int) -> None:
        if self._is_watched(step):
            self._watching.after_update(step)

    def detach(self) -> None:
        for handle in self._watching.handles:
            handle.remove()
        self._watching.handles.clear()

    def findings(self) -> dict[str, list[list[Any]]]:
        """Return step → its tensors in order, each [micro-batch, phase, name, form, digest].

        The form is dtype and shape, "float32(16, 64)"; the digest 16 hexadecimal digits over the
        bits. A step that was not completed is left out.
        """
        return {str(step): entries for step, entries in sorted(self._watching.steps.items())}

    def _is_watched(self, step: int) -> bool:
        return step >= self.first_step and (self.last_step is None or step <= self.last_step)


def _names(watched: Watched) -> dict[Tensor, str]:
    """Return every parameter once, with its name in the model, else its place in the optimizer."""
    names: dict[Tensor, str] = {p: name for name, p in watched.model.named_parameters()}
    for index, group in enumerate(watched.optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            names.setdefault(parameter, f"groups.{index}.params.{place}")
    return names


def _hookable(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield modules with their names; of a compiled one only itself, as code compiled with hooks
    inside is other code, which may round otherwise."""
    if getattr(module, "_compiled_call_impl", None) is not None:
        return
    yield name or "the model", module
    if not hasattr(module, "_orig_mod"):
        for inner, child in module.named_children():
            yield from _hookable(child, f"{name}.{inner}" if name else inner)


def _output_hook(state: _Watching, name: str) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        for place, tensor in _tensors(output, ""):
            state.add("forward", f"{name}[{place}]" if place else name, tensor)

    return hook


def _gradient_hook(state: _Watching, name: str) -> Any:
    def hook(parameter: Tensor) -> None:
        if parameter.grad is not None:
            state.add("backward", name, parameter.grad)

    return hook


def _tensors(value: Any, place: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested tuples, lists and dicts with their places: "0", "1.mask"."""
    if isinstance(value, Tensor):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{place}.{index}" if place else str(index))


@torch.no_grad()
def _digest(value: Any) -> tuple[str, Tensor | str]:
    """Return dtype and shape, and a digest of the bits that nothing has to wait for."""
    if not isinstance(value, Tensor):
        text = f"{type(value).__name__} {value!r}"
        return type(value).__name__, hashlib.sha256(text.encode()).hexdigest()[:16]
    tensor = value.detach()
    form = f"{str(tensor.dtype).removeprefix('torch.')}{tuple(tensor.shape)}"
    if tensor.is_sparse:
        tensor = tensor.coalesce()
        parts = [tensor.indices(), tensor.values()]
    else:
        parts = [tensor.resolve_conj().resolve_neg()]
    try:
        return form, parameter_digest(parts)
    except (RuntimeError, NotImplementedError):
        # A tensor inside torch.func, or of a layout without bytes to read: known by its form only.
        return f"{form} unread", ""


def _fetched(entries: Sequence[_Entry]) -> list[list[Any]]:
    """Return the entries with their digests as text, one transfer per device."""
    waiting: dict[torch.device, list[int]] = {}
    for index, entry in enumerate(entries):
        if isinstance(entry[4], Tensor):
            waiting.setdefault(entry[4].device, []).append(index)
    texts = {index: entry[4] for index, entry in enumerate(entries)}
    for indices in waiting.values():
        digests = [torch.as_tensor(entries[index][4]) for index in indices]
        numbers = torch.stack(digests).tolist()
        texts |= {i: f"{n & (2**64 - 1):016x}" for i, n in zip(indices, numbers, strict=True)}
    return [[*entry[:4], texts[index]] for index, entry in enumerate(entries)]
