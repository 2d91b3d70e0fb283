"""What a replay may change, and where the change takes hold.

An intervention never edits the user's objects: a schedule would write the old value back at its
next step. It answers questions instead, which the run asks at the optimizer, data and autocast
boundaries every step. Each answer defaults to "as it is", so an intervention changes exactly one
thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from stabexp.config import Component


class Intervention(Component):
    """Changes one variable of a training run for as long as the run lasts."""

    variable: ClassVar[str] = ""
    """The YAML name, which is also the name of what is changed."""

    def lr_scale(self, step: int, *, warmup_steps: int) -> float:
        """Return the factor on every parameter group's learning rate at `step` (from 0).

        `warmup_steps` is the linear ramp the run already has.
        """
        return 1.0

    def clip_norm(self, configured: float | None) -> float | None:
        """Return the largest total gradient norm to allow, None for no clipping."""
        return configured

    def batch_multiple(self) -> int:
        """Return how many times the configured samples go into each micro-batch."""
        return 1

    def precision(self, configured: str) -> str:
        """Return the name of the precision to train in."""
        return configured

    def shuffle_salt(self) -> int:
        """Return a number that selects another order of the same data; 0 is the run's own order."""
        return 0

    def replaced_samples(self) -> frozenset[int]:
        """Return the ids of the samples that others are shown in place of."""
        return frozenset()

    def holds_rate(self) -> bool:
        """Return whether the learning rate stays what it was before the first replayed step."""
        return False

    def sets_rate(self) -> bool:
        """Return whether `lr_scale` is the rate itself: the first group's, others in proportion."""
        return False

    def weight_decay_scale(self) -> float:
        """Return the factor on every parameter group's weight decay."""
        return 1.0

    def gradient_scale(self) -> float:
        """Return the factor on every gradient just before the update, after all clipping."""
        return 1.0

    def initial_scale(self) -> float:
        """Return the factor on freshly initialised weights; acts at step 0 only."""
        return 1.0

    def narrows_weights(self) -> bool:
        """Return whether initial weights far wider than usual are narrowed; at step 0 only."""
        return False

    def keeps_optimizer_state(self) -> bool:
        """Return whether the optimizer's state is protected from changes between two updates."""
        return False

    def layer_rates(self) -> Mapping[str, float]:
        """Return factors on the learning rate by module name or its beginning; 0.0 freezes."""
        return {}

    def exact_modules(self) -> tuple[str, ...]:
        """Return the modules, by name, that compute in float32 whatever autocast says."""
        return ()

    def safe_operations(self) -> tuple[str, ...]:
        """Return the operations, by name, that are kept inside their domain (log, sqrt, div, …)."""
        return ()

    def eager(self) -> bool:
        """Return whether compiled code is run as it was written instead."""
        return False

    def standardises_inputs(self) -> bool:
        """Return whether floating-point inputs are brought to mean 0 and deviation 1."""
        return False

    def freezes(self) -> bool:
        """Return whether no update is applied at all, so that every batch meets the same state."""
        return False

    def skips_update(self, step: int) -> bool:
        """Return whether the update of `step` (from 0) is left out, and all else goes on."""
        return False

    def loss_limit(self) -> float:
        """Return the logged loss above which a (micro-)batch has no gradient."""
        return math.inf

    def batches(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the sample ids of every batch to show, in order; None for the run's own order."""
        return None
