"""A module's next forward pass depends on more than its `state_dict`, so more is captured.

Non-persistent buffers, gradients left from the last step, which parameters train, and the training
mode of every submodule are captured too. Restoring writes *into* the existing parameters, so ties,
memory layout, device and dtype stay those of the module, and the optimizer keeps its references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from stabexp.errors import CheckpointError, NotReplayableError
from stabexp.state.plain_values import Memo, from_plain, to_plain


def capture_module(module: nn.Module, *, where: str, memo: Memo, gradients: bool) -> dict[str, Any]:
    """Return everything of a module that decides its next step, as tensors and plain values.

    Raises:
        NotReplayableError: If a tensor cannot be put back, or has no plain form.
    """
    module = uncompiled(module)
    state = dict(module.state_dict())
    for name, value in state.items():
        if isinstance(value, Tensor) and not is_lazy(value) and _overlaps(value):
            raise NotReplayableError(
                f"{where}.{name}: several of its elements share one memory cell (it was expanded), "
                "so it cannot be written to; create it with .clone() or .contiguous()"
            )
    saved: dict[str, Any] = {
        "state": to_plain(state, where=where, memo=memo),
        "buffers": to_plain(
            {name: value for name, value in _buffers(module) if name not in state},
            where=where,
            memo=memo,
        ),
        "requires_grad": {name: p.requires_grad for name, p in _parameters(module)},
        "training": {name: inner.training for name, inner in _modules(module)},
    }
    if gradients:
        grads = {name: p.grad for name, p in _parameters(module) if p.grad is not None}
        saved["gradients"] = to_plain(grads, where=f"{where} gradients", memo=memo)
    return saved


def check_module(module: nn.Module, saved: Mapping[str, Any], *, where: str) -> None:
    """Raise when the captured state does not fit the module.

    Raises:
        NotReplayableError: If it has modules that were made while the training ran.
        CheckpointError: If it is that of another module.
    """
    module = uncompiled(module)
    now, then = module.state_dict(), saved["state"]
    added = sorted(saved["training"].keys() - dict(_modules(module)).keys())
    if added and not (now.keys() - then):
        raise NotReplayableError(
            f"{where}: the checkpoint has the module {added[0]!r}, which the training function has "
            "not made when it calls run.steps, so it cannot be put back; make it before the loop "
            "and freeze it until it is needed, or replay from a checkpoint before it was added"
        )
    problems = [f"{name}{_shape(now[name])} is not in the checkpoint" for name in now.keys() - then]
    problems += [f"{name}{_shape(then[name])} is not in the model" for name in then.keys() - now]
    problems += [
        f"{name} has shape {tuple(then[name].shape)} in the checkpoint, {tuple(value.shape)} here"
        for name, value in now.items()
        if isinstance(value, Tensor)
        and isinstance(then.get(name), Tensor)
        and then[name].shape != value.shape
    ]
    submodules = dict(_modules(module)).keys() ^ saved["training"].keys()
    problems += [f"submodule {name} is only on one side" for name in submodules if not problems]
    if problems:
        shown = "; ".join(sorted(problems)[:4])
        more = f"; and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise CheckpointError(
            f"{where}: {shown}{more}. Build it as the run did: same code, same configuration"
        )


def restore_module(module: nn.Module, saved: Mapping[str, Any]) -> None:
    """Write captured state into the module's own parameters and buffers, cast to their dtypes."""
    module = uncompiled(module)
    now = module.state_dict()
    # Only the container is copied: load_state_dict copies every tensor into the existing one.
    state = {
        name: value if isinstance(now.get(name), Tensor) else from_plain(value)
        for name, value in saved["state"].items()
    }
    now.update(state)  # keeps the container's _metadata, the format version some modules read
    module.load_state_dict(now, strict=True)
    _restore_buffers(module, saved["buffers"], persistent=set(state))
    for name, parameter in _parameters(module):
        parameter.requires_grad_(saved["requires_grad"].get(name, parameter.requires_grad))
        if "gradients" in saved:
            grad = saved["gradients"].get(name)
            parameter.grad = None if grad is None else _like(from_plain(grad), parameter)
    for name, inner in _modules(module):
        inner.training = saved["training"].get(name, inner.training)


def uncompiled(module: nn.Module) -> nn.Module:
    """Return the module behind `torch.compile`, so that both forms share their checkpoints."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


@torch.no_grad()
def _restore_buffers(
    module: nn.Module, saved: Mapping[str, Tensor | None], *, persistent: set[str]
) -> None:
    present = dict(_buffers(module))
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    for name, value in saved.items():
        current = present.get(name)
        if value is None:
            _set_buffer(module, name, None)
        elif current is None or current.shape != value.shape or _overlaps(current):
            # A cache that grows or appears while running: its shape is part of the state.
            _set_buffer(module, name, value.clone().to(device if current is None else current))
        else:
            current.copy_(value)
    for name in present.keys() - saved.keys() - persistent:
        owner, _, leaf = name.rpartition(".")
        delattr(module.get_submodule(owner), leaf)  # it did not exist yet at that step


def _set_buffer(module: nn.Module, name: str, value: Tensor | None) -> None:
    owner, _, leaf = name.rpartition(".")
    holder = module.get_submodule(owner)
    if leaf in holder._buffers:
        holder._buffers[leaf] = value
    else:
        holder.register_buffer(leaf, value, persistent=False)


def _like(grad: Tensor, parameter: Tensor) -> Tensor:
    """Return a gradient on the parameter's device, in its dtype and with the gradient's layout."""
    return grad.to(device=parameter.device, dtype=parameter.dtype)


def _parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return list(module.named_parameters(remove_duplicate=False))


def _modules(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(module.named_modules(remove_duplicate=False))


def _buffers(module: nn.Module) -> list[tuple[str, Tensor | None]]:
    """Return every buffer by full name, the ones that are None included."""
    return [
        (f"{prefix}.{name}" if prefix else name, value)
        for prefix, inner in _modules(module)
        for name, value in inner._buffers.items()
    ]


def _overlaps(value: Tensor) -> bool:
    return (
        any(
            stride == 0 and size > 1
            for size, stride in zip(value.shape, value.stride(), strict=True)
        )
        if value.layout is torch.strided
        else False
    )


def _shape(value: Any) -> str:
    return f" {tuple(value.shape)}" if isinstance(value, Tensor) else ""
