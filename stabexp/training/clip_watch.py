"""Clipping is seen and can be changed wherever a loop clips by norm.

Every way to clip by norm in torch ends in one function, `_clip_grads_with_norm_`: a loop's own
`clip_grad_norm_`, however it was imported, that of Accelerate, of Hugging Face's Trainer and of
Lightning. What the norm was before clipping is known there and nowhere later.
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
        inner = getattr(clip_grad, _PLACE, None)
        self._inner = inner
        if inner is None:  # another version of torch: what loops clip is then not seen
            return

        @functools.wraps(inner)
        def clip(
            parameters: Any, max_norm: float, total_norm: Tensor, *args: Any, **kwargs: Any
        ) -> None:
            chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            limit = clipping(chosen, float(max_norm), total_norm)
            inner(chosen, limit, total_norm, *args, **kwargs)

        setattr(clip_grad, _PLACE, clip)

    def remove(self) -> None:
        """Put torch's function back."""
        if self._inner is not None:
            setattr(clip_grad, _PLACE, self._inner)
            self._inner = None


def clip_coefficient(limit: float, total: Tensor) -> Tensor:
    """Return min(1, limit / (total + 1e-6)), as `torch.nn.utils.clip_grad_norm_` does."""
    return torch.clamp(limit / (total + 1e-6), max=1.0)
