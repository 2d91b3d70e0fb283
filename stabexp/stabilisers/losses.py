"""A cross-entropy that is finite whenever the logits are, and never loses its gradient.

`log(softmax(x))` is -inf as soon as a probability rounds to zero. Two repairs are common and both
are harmful. An ε inside the log, `log(p + ε)`, bounds the loss, and its gradient p / (p + ε) dies
just where the model is most wrong; so does clamping log-probabilities from below. The right form
needs neither: log_softmax subtracts the largest logit before the exponential, in float32. Source
rows C6, B13.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

HALF = (torch.float16, torch.bfloat16)


def safe_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross-entropy, computed in float32 or wider whatever autocast says.

    With targets to learn from and float32 logits it is `torch.nn.functional.cross_entropy` bit for
    bit. Without any (all of them are `ignore_index`) the mean is 0 with gradients of 0, where torch
    gives 0 / 0. A logit that is +inf or NaN already cannot be saved here: keep the operation that
    made it in float32.

    Args:
        logits: (batch, classes, …), any floating-point type; -inf for a class that is ruled out.
        targets: Class numbers, (batch, …), or probabilities, of the shape of `logits`.
        temperature: What the logits are divided by. Above 1 gradients are smaller and the model is
            less sure of itself; 0.7 to 1.3 is usual.
        weight: One for each class.
        ignore_index: A class number that means "no target".
        label_smoothing: Share of each target that is spread over all classes.
        reduction: "mean", "sum" or "none".

    Returns:
        0-d, in nats; with reduction "none" the shape of the class numbers.

    Raises:
        ValueError: If the temperature is not above 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature: expected a number above 0, found {temperature}")
    with torch.autocast(logits.device.type, enabled=False):
        wide = widened(logits)
        if temperature != 1.0:
            wide = wide / temperature
        if targets.is_floating_point():
            targets = targets.to(wide.dtype)
        loss = functional.cross_entropy(
            wide,
            targets,
            weight=None if weight is None else weight.to(wide.dtype),
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
        if reduction != "mean" or targets.is_floating_point():
            return loss
        return torch.where((targets != ignore_index).any(), loss, torch.zeros_like(loss))


def widened(tensor: Tensor) -> Tensor:
    """Return a half-precision tensor in float32, any other as it is."""
    return tensor.float() if tensor.dtype in HALF else tensor
