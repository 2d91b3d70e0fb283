"""A language model's loss is a share of the update's; it is logged whole and handed on as it is.

Divided by the items of all micro-batches, a loss says little by itself. The whole one is made so
that the gradient comes through it, and with not one bit changed: a clamp on the logged loss acts on
what the Trainer trains on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def whole_and_share(loss: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Return a loss times `parts`, and the loss itself with the first one in its graph.

    Args:
        loss: 0-d, one micro-batch's share of the loss of an update.
        parts: Micro-batches in the update.

    Returns:
        Two 0-d tensors. The gradient of the second reaches `loss` through the first, unchanged.
    """
    whole: Tensor = _Whole.apply(loss, parts)  # type: ignore[no-untyped-call]
    share: Tensor = _Share.apply(whole, loss)  # type: ignore[no-untyped-call]
    return whole, share


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, parts: int) -> Tensor:
        return loss * parts

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, loss: Tensor) -> Tensor:
        return loss.detach().clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None
