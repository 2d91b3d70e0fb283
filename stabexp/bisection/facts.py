"""Everything the decision tree may look at, gathered before it is walked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stabexp.detectors.onset import ABNORMAL, loss_z
from stabexp.records import Change, Cure, Divergence, StepRecord, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the diverged run was configured, as far as the tree asks."""

    lr: float | None
    warmup_steps: int
    clip_norm: float | None
    precision: str
    batch_size: int
    """Samples per update, over all micro-batches."""
    micro_batch: int
    """Samples per micro-batch."""
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderFacts:
    """What one variable's doses did."""

    variable: str
    trials: tuple[TrialRecord, ...] = ()
    cure: Cure | None = None
    slow: tuple[str, ...] = ()
    """Keys of the trials that survive but hardly learn next to the best one."""
    undecided: bool = False
    """True when the budget ran out before the doses gave an answer."""
    skipped: str = ""
    """Why nothing could be tried, or not enough; empty when the ladder has its answer."""

    @property
    def cured(self) -> bool:
        """Whether a dose cures and the next stronger one cures too."""
        return self.cure is not None and self.cure.robust

    @property
    def untold(self) -> bool:
        """Whether no dose could be judged, or not enough of them: nothing is known then."""
        return self.undecided or all(r.outcome == "inconclusive" for r in self.trials)

    def trial(self, key: str) -> TrialRecord:
        """Return the trial with this key."""
        return next(record for record in self.trials if record.spec.key == key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The diverged run and all trials of a bisect, ready to be judged."""

    setup: Setup
    divergence: Divergence
    records: Sequence[StepRecord]
    """Step records of the diverged run."""
    good_step: int
    controls: tuple[TrialRecord, ...] = ()
    placebos: tuple[TrialRecord, ...] = ()
    ladders: Mapping[str, LadderFacts] = field(default_factory=dict)
    data: TrialRecord | None = None
    """Replay with other samples in place of those that the crash began with."""
    reversal: TrialRecord | None = None
    proof: TrialRecord | None = None
    fix_dose: float | int | str | None = None
    """Dose that the proof applied; the mildest cure's unless that failed from scratch."""
    spent: bool = False
    """True when the budget was used up before all trials that were wanted had run."""

    def ladder(self, variable: str) -> LadderFacts:
        """Return what a variable's doses did; an empty ladder when it was not tried."""
        return self.ladders.get(variable, LadderFacts(variable=variable, skipped="not tried"))


def samples_of(change: Change, records: Sequence[StepRecord]) -> frozenset[int]:
    """Return the ids of the samples of the steps that a "steps 20-22" dose names."""
    first, last = (int(part) for part in str(change.dose).removeprefix("steps ").split("-"))
    return frozenset(i for r in records if first <= r.step <= last for i in r.sample_ids)


def healthy_norms(records: Sequence[StepRecord], onset: int, *, window: int = 100) -> list[float]:
    """Return the finite gradient norms (before clipping) of the last healthy steps."""
    norms = [r.grad_norm for r in records if r.step < onset and math.isfinite(r.grad_norm)]
    return norms[-window:]


def healthy_norm(records: Sequence[StepRecord], onset: int) -> float:
    """Return the run's usual gradient norm while healthy; NaN when no step was.

    A run that was wrong from its first steps has no healthy norm; then its first finite one stands
    in.
    """
    norms = healthy_norms(records, onset)
    if norms:
        return statistics.median(norms)
    return next((r.grad_norm for r in records if math.isfinite(r.grad_norm)), math.nan)


def burstiness(records: Sequence[StepRecord], divergence: Divergence) -> float:
    """Return the largest gradient norm up to the onset, relative to the usual one; NaN if unknown.

    A single burst can be what throws the run over, so the onset counts, but only while its loss is
    still normal: where the loss is high the norm is large too, whatever the cause.
    """
    usual = healthy_norm(records, divergence.onset)
    until = [record for record in records if record.step <= divergence.onset]
    if until and until[-1].step == divergence.onset and loss_z(until, len(until) - 1) > ABNORMAL:
        until.pop()
    finite = [record.grad_norm for record in until if math.isfinite(record.grad_norm)]
    return max(finite, default=math.nan) / usual if usual > 0 else math.nan
