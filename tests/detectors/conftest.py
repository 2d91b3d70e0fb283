"""Step records made from figures, as a test would write them down."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from stabexp.records import StepRecord

Records = Callable[..., list[StepRecord]]


def make(
    *losses: float,
    grad_norms: Sequence[float] | None = None,
    lrs: Sequence[float] | None = None,
    **fields: object,
) -> list[StepRecord]:
    """Return steps 0, 1, … with these losses; a loss that is not finite spoils its gradients."""
    steps = []
    for step, loss in enumerate(losses):
        broken = not math.isfinite(loss)
        norm = (math.nan if broken else 1.0) if grad_norms is None else grad_norms[step]
        values = {
            "step": step,
            "time": float(step),
            "loss": loss,
            "lr": 1e-3 if lrs is None else lrs[step],
            "grad_norm": norm,
            "nonfinite_grads": int(broken and grad_norms is None),
        }
        steps.append(StepRecord(**{**values, **fields}))
    return steps


@pytest.fixture
def records() -> Records:
    """`records(2.1, 2.0, nan)`: the step records of a run with these losses."""
    return make
