"""What one update showed: brought to the host in one transfer, and made a step record."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stabexp.records import StepRecord


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one update showed, on the host."""

    lr: float
    loss: float
    grad_norm: float
    clip_coefficient: float
    update_ratio: float
    param_norm: float
    skipped: bool
    nonfinite_grads: int
    nonfinite_params: int
    digest: str
    metrics: Mapping[str, float]


def step_record(
    measured: Measured,
    *,
    step: int,
    position: int,
    sample_ids: Sequence[int],
    batch_size: int,
    loss_scale: float | None,
    seconds: float,
) -> StepRecord:
    """Return the record of an update from what was measured of it."""
    layers: dict[str, dict[str, float]] = {}
    metrics: dict[str, float] = {}
    for name, value in measured.metrics.items():
        if name.startswith("layers/"):
            layer, _, kind = name[7:].rpartition("/")
            layers.setdefault(layer, {})[kind] = value
        else:
            metrics[name] = value
    return StepRecord(
        step=step,
        time=time.time(),
        loss=measured.loss,
        lr=measured.lr,
        grad_norm=measured.grad_norm,
        clip_coefficient=measured.clip_coefficient,
        update_ratio=measured.update_ratio,
        param_norm=measured.param_norm,
        loss_scale=loss_scale,
        skipped=measured.skipped,
        nonfinite_grads=measured.nonfinite_grads,
        nonfinite_params=measured.nonfinite_params,
        position=position,
        batch_size=batch_size,
        sample_ids=tuple(sample_ids),
        seconds=seconds,
        digest=measured.digest,
        layers=layers or None,
        metrics=metrics,
    )


def to_host(
    values: Mapping[str | tuple[str, ...], Tensor], digest: Tensor, device: torch.device
) -> tuple[dict[str, float], int]:
    """Return every number by its name, and the digest, in one transfer.

    Args:
        values: Name → 0-d tensor, or names → 1-d tensor of as many, on any device.
        digest: 0-d, int64.
        device: Where they are brought together.
    """
    singles = [key for key in values if isinstance(key, str)]
    series = [key for key in values if not isinstance(key, str)]
    names = [*singles, *(name for key in series for name in key)]
    parts = [values[key].detach().to(device, torch.float64) for key in series]
    if singles:
        alone = [values[key].detach().to(device, torch.float64) for key in singles]
        # Not reshaped one by one: then a process could abort at its exit, in torch's own clean-up
        # (seen with 2.13).
        parts.insert(0, torch.stack(alone))
    floats = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=device)
    # Doubles travel as their bits, so that the integer digest can come along.
    bits = torch.cat([floats.view(torch.int64), digest.to(device).reshape(1)]).tolist()
    numbers = struct.unpack(f"={len(names)}d", struct.pack(f"={len(names)}q", *bits[:-1]))
    return dict(zip(names, numbers, strict=True)), bits[-1]
