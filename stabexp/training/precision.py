"""The number formats a training can use, and what each needs around the forward pass.

Autocast keeps float32 weights and runs most of the forward pass in half precision; "pure" formats
hold the weights themselves in half. float16 ends at 65,504 and loses gradients below 6e-8, hence
the loss scaling (Micikevicius et al. 2018, "Mixed Precision Training"); bfloat16 keeps float32's
range.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class NumberFormat:
    """How one named precision is made."""

    name: str
    weights: torch.dtype = torch.float32
    """Data type of parameters and buffers."""
    autocast: torch.dtype | None = None
    """Data type of autocast regions, None without autocast."""
    scaled: bool = False
    """Whether the loss is scaled dynamically."""

    @property
    def half(self) -> bool:
        """Whether any part of the training is in half precision."""
        return torch.float16 in (self.weights, self.autocast) or torch.bfloat16 in (
            self.weights,
            self.autocast,
        )


FORMATS: dict[str, NumberFormat] = {
    made.name: made
    for made in (
        NumberFormat(name="fp32"),
        NumberFormat(name="bf16", autocast=torch.bfloat16),
        NumberFormat(name="fp16", autocast=torch.float16, scaled=True),
        NumberFormat(name="fp16_unscaled", autocast=torch.float16),
        NumberFormat(name="pure_bf16", weights=torch.bfloat16),
        NumberFormat(name="pure_fp16", weights=torch.float16),
        NumberFormat(name="fp64", weights=torch.float64),
    )
}


def autocast(number_format: NumberFormat, device: str) -> AbstractContextManager[object]:
    """Return the context a forward pass runs in."""
    if number_format.autocast is None:
        return nullcontext()
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=number_format.autocast)


def make_scaler(number_format: NumberFormat, device: str) -> torch.amp.GradScaler | None:
    """Return a dynamic loss scaler (2^16, ×2 every 2,000 clean steps), None when not scaled."""
    if not number_format.scaled:
        return None
    return torch.amp.GradScaler(torch.device(device).type)
