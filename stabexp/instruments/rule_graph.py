"""What the autograd graph says: how a scalar depends on a tensor near it, and on which parameters.

Only the part of the graph between the two is run, with its buffers kept: no module is called again,
no gradient is stored, no random number drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NEAR = 400
"""Graph nodes between a loss and what it is made of, at most."""


def nodes_below(scalar: Tensor, *, limit: int = NEAR) -> set[Any]:
    """Return the graph nodes nearest to `scalar`, itself included, breadth first."""
    if scalar.grad_fn is None:
        return set()
    seen: set[Any] = {scalar.grad_fn}
    queue: deque[Any] = deque(seen)
    while queue and len(seen) < limit:
        for following, _ in queue.popleft().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return seen


def derivatives(scalar: Tensor, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return d scalar / d input for inputs near it, None for those it does not depend on."""
    near = nodes_below(scalar)
    wanted = [i for i, x in enumerate(inputs) if x.grad_fn is not None and x.grad_fn in near]
    found: list[Tensor | None] = [None] * len(inputs)
    if wanted:
        chosen = [inputs[i] for i in wanted]
        if any(tensor.retains_grad for tensor in (*chosen, scalar)):
            return found  # the user keeps this gradient; ours would be added to it
        try:
            grads = torch.autograd.grad(scalar, chosen, retain_graph=True, allow_unused=True)
        except RuntimeError:  # the graph was freed, or is compiled and cannot be kept
            return found
        for index, grad in zip(wanted, grads, strict=True):
            found[index] = grad
    return found


def derivative(scalar: Tensor, other: Tensor) -> float | None:
    """Return d scalar / d other for two scalars of one graph, either way round; else None."""
    if scalar is other:
        return 1.0
    if other.grad_fn is None or scalar.grad_fn is None or other.numel() != 1:
        return None
    if scalar.grad_fn is other.grad_fn:
        return 1.0
    (down,) = derivatives(scalar, [other])
    if down is not None:
        return float(down)
    (up,) = derivatives(other, [scalar])
    return None if up is None or float(up) == 0 else 1.0 / float(up)


def parameters_below(scalar: Tensor, *, limit: int = 100_000) -> set[int] | None:
    """Return the ids of the leaves `scalar` depends on; None when the graph does not tell."""
    leaves: set[int] = set()
    for node in nodes_below(scalar, limit=limit):
        if "CheckpointFunction" in type(node).__name__:
            return None
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(id(variable))
    return leaves
