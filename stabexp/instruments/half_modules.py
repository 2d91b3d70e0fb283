"""Which modules a model has, and in which of them half-precision numbers came near their end.

It tells a search among the modules where to begin: those whose activations overflowed are asked
first.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from pydantic import Field, PrivateAttr
from torch import Tensor, nn

from stabexp.instruments.base import Instrument, Watched

HALF = (torch.float16, torch.bfloat16)


class HalfModules(Instrument):
    """Names of all modules, and of those whose half-precision output came near its largest."""

    near: float = Field(2e4, gt=0)
    """Size of an activation from which a module is a suspect; float16 ends at 65,504."""

    _names: list[str] = PrivateAttr(default_factory=list)
    _largest: dict[str, float] = PrivateAttr(default_factory=dict)
    _handles: list[Any] = PrivateAttr(default_factory=list)

    def attach(self, watched: Watched) -> None:
        for name, module in watched.model.named_modules():
            self._names.append(name)
            if not any(True for _ in module.children()):
                hook = partial(self._watch, name)
                self._handles.append(module.register_forward_hook(hook))

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _watch(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        for tensor in outputs:
            if isinstance(tensor, Tensor) and tensor.dtype in HALF and tensor.numel():
                found = float(tensor.detach().abs().amax())
                largest = self._largest.get(name, 0.0)
                self._largest[name] = math.inf if math.isnan(found) else max(largest, found)

    def findings(self) -> dict[str, list[str]]:
        """Return {"names": all modules in order, "near": the suspects}."""
        near = [
            n for n, size in self._largest.items() if not math.isfinite(size) or size > self.near
        ]
        return {"names": self._names, "near": near}
