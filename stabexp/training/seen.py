"""What a loop was seen to do: the settings of a training whose code is not ours.

A file cannot know the clip norm, the number format or the batch size of somebody else's trainer.
The boundaries see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stabexp.records import StepRecord
from stabexp.training.parts import Parts

LOOP = "loop.json"
"""In a run directory: what the loop was seen to do."""

HALF = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def seen_in(
    parts: Parts,
    *,
    clipped_at: float | None,
    autocast: torch.dtype | None,
    samples: int,
    micro_batches: int,
) -> dict[str, Any]:
    """Return the settings, by name, as plain values.

    Args:
        parts: What is trained.
        clipped_at: The total gradient norm that the loop clips to.
        autocast: Data type of its autocast regions, None when it enters none.
        samples: Samples of the largest update.
        micro_batches: Batches of the largest update.
    """
    group = parts.optimizers[0].param_groups[0]
    decay = group.get("weight_decay", 0.0)
    return {
        "optimizer": type(parts.optimizers[0]).__name__,
        "clip_norm": clipped_at,
        "precision": _format(parts, autocast),
        "micro_batch": samples // max(micro_batches, 1),
        "accumulate": micro_batches,
        "weight_decay": float(decay) if isinstance(decay, (int, float)) else 0.0,
    }


def ramp(records: Sequence[StepRecord]) -> int:
    """Return how many steps the rate rises from the start until it no longer does, 0 without.

    A rate that rises up to the last record is no ramp: perhaps it should have ended.
    """
    rates = [record.lr for record in records]
    count = 0
    while count + 1 < len(rates) and rates[count + 1] > rates[count]:
        count += 1
    ended = 0 < count < len(rates) - 1
    return count if ended and rates[0] <= 0.5 * rates[count] else 0


def _format(parts: Parts, autocast: torch.dtype | None) -> str:
    weights = {p.dtype for p in parts.model.parameters()}
    for dtype, name in HALF.items():
        if dtype in weights:
            return f"pure_{name}"
    if torch.float64 in weights:
        return "fp64"
    if autocast in HALF:
        scaled = parts.scaler is not None and parts.scaler.is_enabled()
        name = HALF[autocast]
        return "fp16_unscaled" if name == "fp16" and not scaled else name
    return "fp32"
