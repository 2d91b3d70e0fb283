"""What a replay may change, and where the change takes hold.

An intervention never edits the user's objects: a schedule would write the old value back at its
next step. It answers questions instead, which the run asks at the optimizer, data and autocast
boundaries every step. Each answer defaults to "as it is", so an intervention changes exactly one
thing.
"""

from __future__ import annotations

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
