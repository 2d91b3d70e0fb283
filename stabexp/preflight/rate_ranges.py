"""Which learning rates are usual for what is trained: from scratch, fine-tuned, or with LoRA.

Ranges of peak rates, as data. A rate outside is no fault by itself, only worth a second look; from
scratch there is no usual range, and `stabexp lr-find` measures one. Source rows B6, C5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TITLES: Mapping[str, str] = {
    "": "training from scratch",
    "full": "fine-tuning a trained model as a whole",
    "lora": "fine-tuning with LoRA",
}
"""What is trained, by the name that `preflight.tuning.kind_of_tuning` gives it."""

WARMUP_STEPS = 500
"""Steps of linear warmup that go with every range below, where the run is long enough."""
WARMUP_SHARE = 0.1
"""Of a shorter run, the share that the warmup takes."""
DECAY = "cosine"
"""What follows the warmup, down to the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRange:
    """The usual peak rates of one way to train."""

    tuning: str
    """"full" or "lora"."""
    optimizers: frozenset[str]
    """Lower-case class names of the optimizers it is about."""
    low: float
    high: float

    def side(self, rate: float) -> Literal["below", "inside", "above"]:
        """Return where a rate lies."""
        return "below" if rate < self.low else "above" if rate > self.high else "inside"


ADAMS = frozenset({"adam", "adamw"})

RANGES: tuple[RateRange, ...] = (
    RateRange(tuning="full", optimizers=ADAMS, low=1e-6, high=5e-5),
    RateRange(tuning="lora", optimizers=ADAMS, low=1e-4, high=5e-3),
)


def range_for(tuning: str, optimizer: str) -> RateRange | None:
    """Return the usual range, None where there is none: from scratch, or another optimizer.

    Args:
        tuning: What is trained: "", "full" or "lora".
        optimizer: The optimizer's class by name, such as "AdamW".
    """
    name = optimizer.lower()
    return next((r for r in RANGES if r.tuning == tuning and name in r.optimizers), None)


def usual_warmup(steps: int | None) -> int:
    """Return how many steps of warmup a run of `steps` steps usually gets; None: a long one."""
    return WARMUP_STEPS if steps is None else min(WARMUP_STEPS, max(1, round(WARMUP_SHARE * steps)))
