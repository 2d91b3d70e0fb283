"""What all elements of a layer show together, in as few passes over them as possible.

On a CPU `sum`, `aminmax` and `count_nonzero` read at the speed of memory; `var`, `isfinite` and the
maximum norm are ten to forty times slower. So a variance is made of the norm, which is known, and
the sum; and what is not finite shows in a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stabexp.monitors.layer_groups import Grouping


def mean_and_variance(
    tensors: Sequence[Tensor], norms: Tensor, group: Grouping
) -> tuple[Tensor, Tensor]:
    """Return mean and population variance of each layer, float64, shape (len(group.layers),).

    Args:
        tensors: Those of `group.kept`, none of them empty.
        norms: L2 norm of each, shape (len(tensors),).
        group: How they fall into layers.
    """
    sums = torch.stack([_sum(tensor).to(norms.device) for tensor in tensors])
    mean = group.total(sums) / group.sizes
    square = group.total(norms.double().square()) / group.sizes
    # Rounding may leave the difference below zero when all elements are nearly the same.
    return mean, (square - mean.square()).clamp_min(0)


def extremes(tensors: Sequence[Tensor], group: Grouping) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest element of each layer, float64."""
    device = group.sizes.device
    pairs = [torch.aminmax(tensor) for tensor in tensors]
    low = torch.stack([pair.min.to(device, torch.float64) for pair in pairs])
    high = torch.stack([pair.max.to(device, torch.float64) for pair in pairs])
    return group.smallest(low), group.largest(high)


def zero_share(tensors: Sequence[Tensor], group: Grouping) -> Tensor:
    """Return the share of each layer's elements that are exactly zero, float64."""
    device = group.sizes.device
    filled = torch.stack([torch.count_nonzero(tensor).to(device) for tensor in tensors])
    return 1 - group.total(filled) / group.sizes


def _sum(tensor: Tensor) -> Tensor:
    wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.sum(dtype=wide)
