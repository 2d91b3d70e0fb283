"""What is too large or too small for *this* run: calibrated on its own healthy steps.

A transformer's gradient norms lie far under a convolutional network's, so a norm of 5 is an
explosion in one and a Tuesday in the other. Where a run has healthy steps, limits are multiples of
what it did there. Where it has none, the figures of the practitioners' documents have to do.
Source rows C4, C7, B2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from stabexp.detectors.robust import finite, noise
from stabexp.records import StepRecord

WINDOW = 100
"""Steps that are looked at together."""
EVERY = 50
"""Steps between two looks."""
LEAST = 10
"""Losses without which nothing is said."""

EXPLODING = 5.0
"""Norm of an exploded gradient, where nothing is known of the run."""
VANISHING = 1e-7
"""Norm of a vanished gradient."""
DEGENERATE = 1e-6
"""Norm below which a layer is dead."""
VARIATION = 0.5
"""Coefficient of variation (standard deviation ÷ mean) of an oscillating loss."""
ALARM = 1000.0
"""Norm before clipping that is an alarm in any run, unless such norms are its daily bread."""

ENOUGH = 32
"""Healthy steps that calibrate."""
TIMES_USUAL, TIMES_LARGEST = 10.0, 3.0
"""An exploded norm is beyond both: this many times the median, and the largest, healthy norm."""
SHARE_OF_USUAL = 1e-4
"""A vanished norm is below this share of the median healthy norm."""
TIMES_SWING = 3.0
"""An oscillating loss changes from step to step by this many times what it did while healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a figure of a run counts as a symptom."""

    exploding: float = EXPLODING
    vanishing: float = VANISHING
    swing: float = 0.0
    """Change of the loss from step to step up to which it only goes on as it did."""
    relative_swing: float = 0.0
    """The same as a share of the loss's level: the noise of many losses falls with them."""
    usual: float = float("nan")
    """Median gradient norm of the healthy steps; NaN where none calibrated."""
    source: str = "the documents' figures: the run has too few healthy steps to calibrate on"
    """Where the limits come from, for people."""

    @property
    def calibrated(self) -> bool:
        """Whether the run's own healthy steps set the limits."""
        return self.usual == self.usual

    @property
    def alarm(self) -> float:
        """Norm before clipping that is an alarm."""
        return max(ALARM, self.exploding) if self.calibrated else ALARM


def limits_of(healthy: Sequence[StepRecord]) -> Limits:
    """Return the limits that healthy steps set, or the documents' where they are too few.

    Args:
        healthy: Steps of one run, oldest first, of which nothing bad is known.
    """
    norms = [norm for norm in finite(record.grad_norm for record in healthy) if norm > 0]
    losses = finite(record.loss for record in healthy)
    swing = TIMES_SWING * noise(losses) if len(losses) >= ENOUGH else 0.0
    level = abs(median(losses)) if losses else 0.0
    relative = swing / level if level > 0 else float("inf") if swing else 0.0
    if len(norms) < ENOUGH:
        return Limits(swing=swing, relative_swing=relative)
    usual = median(norms)
    return Limits(
        exploding=max(TIMES_USUAL * usual, TIMES_LARGEST * max(norms)),
        vanishing=SHARE_OF_USUAL * usual,
        swing=swing,
        relative_swing=relative,
        usual=usual,
        source=f"{len(norms)} healthy steps, {healthy[0].step} to {healthy[-1].step}: "
        f"gradient norm {usual:.3g} in the median, {max(norms):.3g} at most",
    )


def calm_until(records: Sequence[StepRecord], onset: int | None) -> int:
    """Return the index of the first record that is not known to be healthy."""
    if onset is None:
        return len(records)
    return next((i for i, r in enumerate(records) if r.step >= onset), len(records))


def healthy_before(
    records: Sequence[StepRecord], first_judged: int, calm: int
) -> Sequence[StepRecord]:
    """Return the healthy steps to compare a step with: those before it, else those after it.

    Args:
        records: All steps, oldest first.
        first_judged: Index of the first record that is judged; it and later ones are left out,
            unless there are too few before it.
        calm: Index from which on nothing is healthy.
    """
    end = min(first_judged, calm)
    before = records[max(0, end - WINDOW) : end]
    if len(before) >= ENOUGH:
        return before
    # The first steps of a training are often its wildest; what came after shows what is usual.
    after = first_judged + LEAST
    return records[after : min(calm, after + WINDOW)] or before
