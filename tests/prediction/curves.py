"""Step records with the curves a test needs."""

from __future__ import annotations

import math
import random

from stabexp.records import StepRecord

STEPS = 300


def noisy(level, *, by=0.05, seed=0):
    """Return a function of the step that is `level(step)` with noise around it."""
    draw = random.Random(seed)
    return lambda step: level(step) * math.exp(draw.gauss(0.0, by))


def records(steps=STEPS, *, scale=None, metrics=None, layers=None, **curves):
    """Return a healthy run's records with some curves replaced; each is a function of the step."""
    usual = {
        "loss": noisy(lambda step: 1.0 + 2.0 * math.exp(-step / 30)),
        "lr": lambda step: 1e-3,
        "grad_norm": noisy(lambda step: 1.0, by=0.3, seed=1),
        "update_ratio": lambda step: 1e-3,
        "param_norm": lambda step: 10.0 + 2.0 * (1 - math.exp(-step / 30)),
    }
    chosen = usual | curves
    return [
        StepRecord(
            step=step,
            time=0.0,
            loss_scale=scale,
            metrics={name: curve(step) for name, curve in (metrics or {}).items()},
            layers={n: {"weight_norm": c(step)} for n, c in layers.items()}
            if layers and step % 10 == 0
            else None,
            **{name: curve(step) for name, curve in chosen.items()},
        )
        for step in range(steps)
    ]


def grows(level, *, rate, since=150):
    """Return a curve that stays at `level` and grows by a factor per step from `since` on."""
    return lambda step: level * (1 + rate) ** max(0, step - since)
