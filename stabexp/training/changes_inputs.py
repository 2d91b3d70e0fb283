"""Inputs are brought to mean 0 and standard deviation 1, feature by feature.

By the batch's own figures, in float64: no state, so the same batch gives the same values in every
replay, and no rounding of one feature depends on another. Entries that are not finite stay what
they are and do not count; a feature that is constant in the batch becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def with_standard_inputs(batch: Any) -> Any:
    """Return the batch with its first tensor standardised, when that is floating-point.

    Args:
        batch: A tensor, or a tuple, list or dict whose first entry is the input.
    """
    if isinstance(batch, Tensor):
        return standardised(batch) if batch.is_floating_point() and batch.dim() > 1 else batch
    if isinstance(batch, Mapping):
        return {
            key: with_standard_inputs(value) if place == 0 else value
            for place, (key, value) in enumerate(batch.items())
        }
    if isinstance(batch, (list, tuple)) and batch:
        parts = [with_standard_inputs(batch[0]), *batch[1:]]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def standardised(inputs: Tensor) -> Tensor:
    """Return (x - mean) / deviation per feature, in the shape and dtype of the inputs.

    Args:
        inputs: Samples first. Features are the last dimension of two- or three-dimensional inputs
            and dimension 1 of larger ones.
    """
    feature = inputs.dim() - 1 if inputs.dim() <= 3 else 1
    dims = [dim for dim in range(inputs.dim()) if dim != feature]
    if not inputs.numel():
        return inputs
    values = inputs.double()
    finite = values.isfinite()
    count = finite.sum(dims, keepdim=True).clamp(min=1)
    low = values.masked_fill(~finite, torch.inf).amin(dims, keepdim=True)
    high = values.masked_fill(~finite, -torch.inf).amax(dims, keepdim=True)
    mean = values.masked_fill(~finite, 0.0).sum(dims, keepdim=True) / count
    # The mean of equal numbers can be off by a rounding, and that must not be blown up.
    constant = low == high
    mean = torch.where(constant, low, mean)
    spread = (values - mean).masked_fill(~finite, 0.0).square().sum(dims, keepdim=True) / count
    deviation = torch.where(constant | (spread == 0), 1.0, spread.sqrt())
    return ((values - mean) / deviation).to(inputs.dtype)
