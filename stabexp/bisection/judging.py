"""What became of a trial: one pure judgement, from its records and the diverged run's.

A replay that no longer diverges is not cured when it no longer learns either: a learning rate
divided by a thousand "cures" anything. So survival counts only with progress, compared with the
progress the diverged run itself made while it was healthy.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.records import Divergence, Outcome, StepRecord, TrialSpec

REFERENCE_SHARE = 0.25
"""A cure makes at least this share of the healthy run's progress."""
SCRATCH_SHARE = 0.02
"""From step 0 the loss falls by at least this share of where it began: frozen weights do not."""
SPARING = frozenset(
    {"safe_operation", "adam_eps", "optimizer_state", "hold_rate", "eager", "gradient_scale"}
    | {"replace_samples", "standardise_inputs"}
)
"""Changes that take nothing from the learning: a fault is switched off, a sample replaced."""
SPARING_FACTOR, SPARING_SHARE = 3.0, 0.1
"""By how many deviations, or which share of it, the loss may have wandered up in these."""
LEAST_SEEN = 4
"""Steps of a run from which on its scatter can be told."""
HARMLESS_SHARE = 0.02
"""Share of the progress made so far by which a loss may rise without that being harm."""
LEVEL_ERROR = 1.253 / math.sqrt(10)
"""Standard error of the median of ten draws, in standard deviations of one."""
DELAY_FACTOR = 2.0
"""Delayed: survived this many times the control's steps before diverging all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Outcome of a trial and the figures behind it."""

    outcome: Outcome
    start_loss: float
    end_loss: float
    note: str


def judge_trial(
    spec: TrialSpec,
    records: Sequence[StepRecord],
    divergence: Divergence | None,
    *,
    original: Sequence[StepRecord],
    crash: Divergence,
    trivial_loss: float | None = None,
) -> Judgement:
    """Return what became of a trial.

    Args:
        spec: What was replayed.
        records: The trial's own records, oldest first.
        divergence: What the detectors found in it.
        original: Records of the diverged run.
        crash: The diverged run's own finding.
        trivial_loss: What a model scores that knows nothing (ln of the class count), None if
            unknown. A network that collapsed to it survives for ever and has learned nothing.
    """
    losses = [record.loss for record in records]
    start, end = _start_loss(spec, losses, original), level(losses[-10:])
    if divergence is not None:
        survived = divergence.detected - spec.from_step
        before = max(crash.detected - spec.from_step, 1)
        late = survived > DELAY_FACTOR * before and survived > before + 5
        outcome: Outcome = "delayed" if late else "diverged"
        note = f"{divergence.message}; {survived + 1} steps after the fork"
        return Judgement(outcome=outcome, start_loss=start, end_loss=end, note=note)
    if not records:
        return Judgement(outcome="inconclusive", start_loss=start, end_loss=end, note="no steps")
    # A run that crashed at once says nothing about how a loss scatters; its replays do.
    seen = original if crash.onset >= LEAST_SEEN else records
    needed = needed_progress(spec.from_step, seen, crash, start=start)
    harmless = tolerated(seen, crash, start=start)
    sparing = bool(spec.changes) and all(c.variable in SPARING for c in spec.changes)
    if sparing:  # survival is what is asked for
        harmless = max(SPARING_FACTOR * harmless, SPARING_SHARE * abs(start))
        needed = -harmless
    made = start - end if math.isfinite(start) else math.nan
    beaten = (
        sparing
        or trivial_loss is None
        or end < trivial_loss - LEVEL_ERROR * noise(records, math.inf)
    )
    if made >= needed and beaten:
        note = f"no divergence in {len(records)} steps; loss {start:.4g} → {end:.4g}"
        return Judgement(outcome="cured", start_loss=start, end_loss=end, note=note)
    if -made > harmless:
        # Not frozen but damaged: a milder dose would do worse, a stronger one may do better.
        note = (
            f"no detector fired in {len(records)} steps, but the loss ended above where it began: "
            f"{start:.4g} → {end:.4g}"
        )
        return Judgement(outcome="delayed", start_loss=start, end_loss=end, note=note)
    missed = (
        f"where a model that knows nothing scores {trivial_loss:.4g}"
        if made >= needed and trivial_loss is not None
        else f"a fall of {made:.3g} where {needed:.3g} is the least that counts"
    )
    note = (
        f"no divergence in {len(records)} steps, but it did not learn: loss {start:.4g} → "
        f"{end:.4g}, {missed}"
    )
    return Judgement(outcome="stalled", start_loss=start, end_loss=end, note=note)


def _start_loss(spec: TrialSpec, losses: Sequence[float], original: Sequence[StepRecord]) -> float:
    """Return the loss that the trial's state began with: the same for all trials of a checkpoint.

    A trial's own first steps would not do, because a change can make them much worse at once, and
    the way back from there is no progress.
    """
    before = [r.loss for r in original if spec.from_step - 5 <= r.step < spec.from_step]
    if spec.from_trial or not before:
        return losses[0] if losses else math.nan
    return level(before)


def needed_progress(
    from_step: int, original: Sequence[StepRecord], crash: Divergence, *, start: float
) -> float:
    """Return by how much the loss must fall for a surviving trial to count as learning.

    A quarter of what the diverged run achieved from the same step while healthy. Progress that is
    within the noise of the batches cannot be asked for; then the loss only must not have risen
    above that noise. On a plateau the lowest of many levels lies below the first by chance alone,
    so it is the progress asked for that must stand out, not the progress made.
    """
    healthy = [r.loss for r in original if from_step <= r.step < crash.onset]
    healthy = [loss for loss in healthy if math.isfinite(loss)]
    floor = SCRATCH_SHARE * abs(start) if from_step == 0 else -math.inf
    spread = tolerated(original, crash, start=start)
    if len(healthy) < 8:
        return floor if from_step == 0 else -spread
    windows = [level(healthy[i : i + 5]) for i in range(len(healthy) - 4)]
    asked = REFERENCE_SHARE * (windows[0] - min(windows))
    return max(floor, asked if asked > noise(original, crash.onset) else -spread)


def tolerated(original: Sequence[StepRecord], crash: Divergence, *, start: float) -> float:
    """Return by how much the loss may have risen without that being harm.

    Near its floor a loss wanders by more than its jumps from batch to batch tell. What that is
    worth is a matter of how far the training has come: a fiftieth of its progress is no harm.
    """
    spread = noise(original, crash.onset if crash.onset >= LEAST_SEEN else math.inf)
    first = next((record.loss for record in original), math.nan)
    progress = first - start
    return max(spread, HARMLESS_SHARE * progress) if math.isfinite(progress) else spread


def noise(records: Sequence[StepRecord], before: float, *, window: int = 32) -> float:
    """Return how far a loss scatters around the trend: one standard deviation, in loss units."""
    losses = [r.loss for r in records if r.step < before and math.isfinite(r.loss)][-window:]
    if len(losses) < 4:
        return 0.0
    jumps = [abs(b - a) for a, b in itertools.pairwise(losses)]
    # The median of |x - y| of two normal draws is 0.954 standard deviations.
    return statistics.median(jumps) / 0.954


def level(losses: Sequence[float]) -> float:
    """Return the median, NaN for none; a loss that is not finite counts as infinitely high."""
    finite_or_worst = [loss if math.isfinite(loss) else math.inf for loss in losses]
    return statistics.median(finite_or_worst) if losses else math.nan
