"""Diverged runs that look as one fault makes them look, for tests of what decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bisection.scripted_world import SETUP, divergence, step_records

RUN = step_records()
BURSTS = step_records(bursts=(12, 25))
"""Rare gradients out of proportion."""
RISING = [replace(r, lr=0.3 if r.step >= 38 else 0.1) for r in RUN]
"""A schedule that jumps."""
LOST = [replace(r, update_ratio=8e-3 if r.step == 40 else 1e-3, grad_norm=1.0) for r in RUN]
"""An update that is far too large for its gradient."""
WILD = [replace(RUN[0], loss=50.0), *RUN[1:]]
"""A first loss far above that of guessing."""
EATEN = [replace(r, param_norm=10 - 0.2 * r.step) for r in RUN]
"""Weights that shrink."""
HEART = [replace(r, loss=1.0, metrics={"val_loss": 2.0 + 0.05 * r.step}) for r in RUN]
"""A held-out loss that rises."""
FLAT = step_records(slope=0.0)
"""A loss that never came down."""
SUDDEN = replace(divergence(), pattern="sudden_jump")

NO_WARMUP = replace(SETUP, warmup_steps=0)
HALF = replace(SETUP, precision="fp16")
TINY = replace(SETUP, batch_size=1, micro_batch=1)
GUESSING = replace(SETUP, trivial_loss=2.3)

LOWER_RATE = {"learning_rate": "ddcccsss"}
OVERFLOW = {"control": {"half_activation_absmax": 5e4}}
NOISY: dict[str, Any] = {
    "control": {"early_grad_norm": 4.0},
    "batch_size": {"early_grad_norm": 1.2},
}
