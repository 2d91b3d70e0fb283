"""Weights of a model that somebody else built are held in another number format for a replay.

The parameters and buffers stay the same objects, so the optimizer and every tie keep them; memory
that several of them share is converted once and stays shared, and strides stay as they are. Inputs
are cast where a module with weights of its own receives them; what the loop does outside of modules
is left as it is. Code that was compiled for the old format is run as it was written instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from stabexp.errors import NotReplayableError
from stabexp.stabilisers.exact_modules import HALF, mapped
from stabexp.state.module_state import uncompiled


class WeightFormat:
    """Holds a model's floating-point weights in `dtype` until `remove` takes the casts back."""

    def __init__(
        self, model: nn.Module, dtype: torch.dtype, *, optimizers: Sequence[Optimizer] = ()
    ) -> None:
        """Convert weights, buffers, and what the optimizers remember in the weights' format.

        Raises:
            NotReplayableError: If a weight is in memory that cannot be held in another format.
        """
        model = uncompiled(model)
        self._only_half = dtype == torch.float32
        self._dtype = dtype
        before: dict[Tensor, torch.dtype] = {p: p.dtype for p in model.parameters()}
        with torch.no_grad():
            self._convert([tensor for module in model.modules() for tensor in _held(module)])
            for optimizer in optimizers:
                self._convert_state(optimizer, before)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()

        def cast(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            return mapped(args, to_dtype), mapped(kwargs, to_dtype)

        def to_dtype(tensor: Tensor) -> Tensor:
            return tensor.to(dtype) if self._changes(tensor) else tensor

        self._handles = [
            module.register_forward_pre_hook(cast, with_kwargs=True)
            for module in model.modules()
            if any(p is not None for p in module._parameters.values())
        ]
        self._compiled = ExitStack()
        if "torch._dynamo" in sys.modules:
            # What is compiled already would not see these hooks.
            self._compiled.enter_context(torch.compiler.set_stance("force_eager"))

    @classmethod
    def of(
        cls, model: nn.Module, dtype: torch.dtype, *, optimizers: Sequence[Optimizer] = ()
    ) -> WeightFormat | None:
        """Change the format where the model has another one; None when nothing is to be done.

        A replay in float32 widens half weights; weights that are wider already stay. A replay in
        half precision leaves a model alone that holds weights in that format already: what it keeps
        wider beside them, it keeps on purpose.
        """
        own = {p.dtype for p in model.parameters() if p.is_floating_point()}
        if dtype == torch.float32:
            wanted = bool(own & set(HALF))
        elif dtype in HALF:
            wanted = dtype not in own
        else:
            wanted = own != {dtype}
        return cls(model, dtype, optimizers=optimizers) if wanted else None

    def remove(self) -> None:
        """Take the casts back; the weights stay as they are, the replay is over."""
        for handle in self._handles:
            handle.remove()
        self._compiled.close()

    def _changes(self, tensor: Tensor) -> bool:
        if self._only_half:
            return tensor.dtype in HALF
        return tensor.is_floating_point() and tensor.dtype != self._dtype

    def _convert(self, tensors: Sequence[Tensor]) -> None:
        """Swap the memory of every tensor that changes, whole allocations at once."""
        shared: dict[tuple[int, torch.dtype], list[Tensor]] = {}
        for tensor in dict.fromkeys(t for t in tensors if self._changes(t)):
            if tensor.layout is not torch.strided:
                raise NotReplayableError(
                    f"precision: a weight of shape {tuple(tensor.shape)} is {tensor.layout}, which "
                    "cannot be held in another format; leave this change out"
                )
            place = tensor.untyped_storage().data_ptr(), tensor.dtype
            shared.setdefault(place if tensor.numel() else (id(tensor), tensor.dtype), []).append(
                tensor
            )
        for group in shared.values():
            first = group[0]
            whole = torch.empty(0, dtype=first.dtype, device=first.device)
            whole = whole.set_(first.untyped_storage()).to(self._dtype)
            for tensor in group:
                tensor.data = whole.as_strided(
                    tensor.shape, tensor.stride(), tensor.storage_offset()
                )
                tensor.grad = None

    def _convert_state(self, optimizer: Optimizer, before: dict[Tensor, torch.dtype]) -> None:
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                if (
                    isinstance(value, Tensor)
                    and key != "step"
                    and value.dtype == before.get(parameter) != parameter.dtype
                ):
                    state[key] = value.to(parameter.dtype)


def _held(module: nn.Module) -> Iterator[Tensor]:
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and not is_lazy(tensor):
            yield tensor
