"""Clipping is seen and can be changed wherever a loop clips by norm.

Every way to clip by norm in torch ends in one function, `_clip_grads_with_norm_`: a loop's own
`clip_grad_norm_` and `clip_grads_with_norm_`, that of Accelerate, of Hugging Face's Trainer and of
Lightning. What the norm was before clipping is known there and nowhere later. Many modules hold
that function under a name of their own, so it is exchanged inside of it. `clip_grad_value_`, and
clipping that is written out by hand, are not seen: then the norm is measured after them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad

_PLACE = "_clip_grads_with_norm_"

Clipping = Callable[[Sequence[Tensor], float, Tensor], float]
"""(parameters, largest norm, total norm) → the largest norm to clip to."""


class ClipWatch:
    """Tells of every clipping by norm in this process until `remove`."""

    def __init__(self, clipping: Clipping) -> None:
        """`clipping` is called just before the gradients are scaled; its answer is clipped to."""
        self._cell = _cell()
        if self._cell is None:  # another version of torch: what loops clip is then not seen
            return
        inner = self._inner = self._cell.cell_contents

        @functools.wraps(inner)
        def clip(
            parameters: Any, max_norm: float, total_norm: Tensor, *args: Any, **kwargs: Any
        ) -> None:
            chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            limit = float(max_norm)
            if self._cell is not None:
                limit = clipping(chosen, limit, total_norm)
            inner(chosen, limit, total_norm, *args, **kwargs)

        self._ours = self._cell.cell_contents = clip

    def remove(self) -> None:
        """Put torch's function back; somebody who wrapped ours keeps it, and it does nothing."""
        if self._cell is not None and self._cell.cell_contents is self._ours:
            self._cell.cell_contents = self._inner
        self._cell = None


def _cell() -> Any:
    """Return the closure cell through which torch's wrapper calls the function itself."""
    wrapper = getattr(clip_grad, _PLACE, None)
    for cell in getattr(wrapper, "__closure__", None) or ():
        if getattr(cell.cell_contents, "__name__", "") == _PLACE:
            return cell
    return None


def clip_coefficient(limit: float, total: Tensor) -> Tensor:
    """Return min(1, limit / (total + 1e-6)), as `torch.nn.utils.clip_grad_norm_` does."""
    return torch.clamp(limit / (total + 1e-6), max=1.0)
