"""Weights of a model that somebody else built are held in another number format for a replay.

The parameters stay the same objects, so the optimizer keeps them. Inputs are cast where a module
with weights of its own receives them; what the loop does outside of modules is left as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from stabexp.state.module_state import uncompiled
from stabexp.training.changes_modules import mapped

HALF = (torch.float16, torch.bfloat16)


class WeightFormat:
    """Holds a model's floating-point weights in `dtype` until `remove` takes the casts back."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        model = uncompiled(model)
        with torch.no_grad():
            for module in model.modules():
                for parameter in module._parameters.values():
                    if parameter is not None and parameter.is_floating_point():
                        parameter.data = parameter.data.to(dtype)
                        parameter.grad = None
                for name, buffer in module._buffers.items():
                    if buffer is not None and buffer.is_floating_point():
                        module._buffers[name] = buffer.to(dtype)
        for module in model.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()

        def cast(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            return mapped(args, to_dtype), mapped(kwargs, to_dtype)

        def to_dtype(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        self._handles = [
            module.register_forward_pre_hook(cast, with_kwargs=True)
            for module in model.modules()
            if any(p is not None for p in module._parameters.values())
        ]

    @classmethod
    def of(cls, model: nn.Module, dtype: torch.dtype) -> WeightFormat | None:
        """Change the format where the model has another one; None when nothing is to be done.

        A replay in float32 widens half weights; weights that are wider already stay.
        """
        own = {p.dtype for p in model.parameters() if p.is_floating_point()}
        if dtype == torch.float32:
            return cls(model, dtype) if own & set(HALF) else None
        return cls(model, dtype) if own != {dtype} else None

    def remove(self) -> None:
        """Take the casts back; the weights stay as they are, the replay is over."""
        for handle in self._handles:
            handle.remove()
