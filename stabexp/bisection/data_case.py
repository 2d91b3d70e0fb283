"""What is known about the samples of a crash: what each replay showed, and a scan of each alone.

A scan shows samples one by one to the state of a checkpoint, without any update. It says which of
them stand out from the others, and is a hint: a hard sample stands out as a broken one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from stabexp.records import StepRecord, TrialRecord

STANDS_OUT = 4.0
"""Robust deviations, on a logarithmic scale, above which a scanned sample is flagged.

Of some 600 healthy digits the worst reached 3.0; one that is a thousand times too bright 4.6 to 30.
"""
RAISED = 2.0
"""Robust deviations above which a scanned sample is no ordinary one."""
FLAGGED_AT_MOST = 8
"""More samples than these do not stand out: then it is the scan that says little."""
FEW = 3
"""Samples up to which those that stand apart from a long tail are taken for broken ones."""
LEAST_SPREAD = 0.25
"""Least deviation of a logarithm: samples within a few tens of per cent are alike."""

DataOutcome = Literal["cured", "diverged", "inconclusive"]
"""What became of a replay, as far as samples are concerned."""

QuestionKind = Literal["all", "flagged", "half", "necessity", "placebo", "other_state"]
"""What a replay asks.

all: does it crash without any of the suspects? · flagged: without what the scan flagged? · half:
with only some of the suspects? · necessity: is each of these needed, and are they enough? ·
placebo: without as many innocent ones? · other_state: does another state crash on them too?
"""


DataVerdict = Literal["bad_data", "hard_batch_fragile_state", "not_data", "undecided"]
"""What a search can find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataQuestion:
    """A replay to run: which samples others are shown in place of, and which are shown first."""

    replace: frozenset[int]
    """Ids replaced wherever they come up in the run's own order."""
    kind: QuestionKind = field(compare=False)
    show: tuple[tuple[int, ...], ...] = ()
    """Batches to show first, as they are, to another state (other_state only)."""
    reason: str = field(default="", compare=False)
    """One sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAnswer:
    """What a replay showed."""

    outcome: DataOutcome
    onset: int | None = None
    """First step that looked wrong; None unless it diverged."""
    detected: int | None = None
    """Step at which the detector was sure; None unless it diverged."""
    shown: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Step → the ids that were really shown in it, for all replayed steps."""

    def seen(self, *, until: int | None = None) -> frozenset[int]:
        """Return the ids shown up to and with step `until`; None for all."""
        return frozenset(
            sample
            for step, ids in self.shown.items()
            if until is None or step <= until
            for sample in ids
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleScore:
    """What one sample alone gave at the checkpoint's own parameters; NaN and ±Inf are kept."""

    loss: float
    grad_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Everything that decides the next question."""

    control: DataAnswer
    """The unchanged replay, which diverged."""
    dataset_size: int
    answers: Mapping[DataQuestion, DataAnswer] = field(default_factory=dict)
    scan: Mapping[int, SampleScore] = field(default_factory=dict)
    """Id → its score; empty when there was no scan."""
    other_state: bool = True
    """Whether there is another healthy state to show the culprits to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDecision:
    """Which samples did it, and how far that is known."""

    verdict: DataVerdict
    samples: tuple[int, ...] = ()
    """Ids, in order; without them the run trains through."""
    exact: bool = False
    """Whether replacing just these cures, and each was seen to bring the crash back."""
    joint: bool = False
    """Whether some of them only crash together."""
    groups: tuple[tuple[int, ...], ...] = ()
    """The same ids by what is enough for a crash: one id each, or those that crash together."""
    why: str = ""
    replays: int = 0


def answer_of(record: TrialRecord, steps: Sequence[StepRecord]) -> DataAnswer:
    """Return what a trial says about its samples, from its record and its own step records.

    A network that one sample ruined can go on quietly at the level of guessing, and no detector
    fires. So a trial that survived without learning counts as diverged where its loss or gradient
    norm stood out from all its other steps. Where nothing does, it is inconclusive.
    """
    shown = {step.step: step.sample_ids for step in steps}
    if record.outcome == "cured":
        return DataAnswer(outcome="cured", shown=shown)
    found = record.divergence
    onset, detected = (None, None) if found is None else (found.onset, found.detected)
    if found is None and record.outcome in {"stalled", "delayed"}:
        onset = detected = _ruinous_step(steps)
    outcome: DataOutcome = "inconclusive" if onset is None else "diverged"
    return DataAnswer(outcome=outcome, onset=onset, detected=detected, shown=shown)


def _ruinous_step(steps: Sequence[StepRecord]) -> int | None:
    """Return the step that stands out most, None when none does."""
    z = deviations({s.step: SampleScore(loss=s.loss, grad_norm=s.grad_norm) for s in steps})
    worst = max(z, key=lambda step: (z[step], -step), default=None)
    return worst if worst is not None and z[worst] > STANDS_OUT else None


def scores_of(steps: Sequence[StepRecord]) -> dict[int, SampleScore]:
    """Return the scores from the steps of a frozen scan: the first id of each is the one scanned.

    Of a sample scanned twice the lower figures count: with one of the partners it was fine.
    """
    found: dict[int, SampleScore] = {}
    for step in steps:
        sample = step.sample_ids[0]
        score = SampleScore(loss=step.loss, grad_norm=step.grad_norm)
        if sample in found:
            pair = (found[sample], score)
            score = SampleScore(
                loss=min((p.loss for p in pair), key=_as_high),
                grad_norm=min((p.grad_norm for p in pair), key=_as_high),
            )
        found[sample] = score
    return found


def deviations(scan: Mapping[int, SampleScore]) -> dict[int, float]:
    """Return by how many robust deviations each sample stands above the others: id → z.

    The larger of the two for the loss and the gradient norm, both as logarithms; +Inf where either
    is not finite. Fewer than four samples cannot stand out from each other unless not finite.
    """
    found = dict.fromkeys(scan, -math.inf)
    for figures in (
        {sample: score.loss for sample, score in scan.items()},
        {sample: score.grad_norm for sample, score in scan.items()},
    ):
        logs = {i: math.log(max(abs(v), 1e-12)) for i, v in figures.items() if math.isfinite(v)}
        if logs:
            centre = median(logs.values())
            spread = 1.4826 * median(abs(value - centre) for value in logs.values())
        for sample in figures:
            if sample not in logs:
                found[sample] = math.inf
            elif len(logs) >= 4:
                z = (logs[sample] - centre) / max(spread, LEAST_SPREAD)
                found[sample] = max(found[sample], z)
    return found


def flagged(z: Mapping[int, float]) -> tuple[int, ...]:
    """Return the ids whose `deviations` stand out, the most conspicuous first.

    Empty when so many do that it says nothing about any of them.
    """
    found = [sample for sample in z if z[sample] > STANDS_OUT]
    found.sort(key=lambda sample: (-z[sample], sample))
    return tuple(found) if len(found) <= FLAGGED_AT_MOST else ()


def whole_batches(z: Mapping[int, float], shown: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Return the ids that are raised in steps whose batches stand out as a whole, in their order.

    A long tail is spread over all batches; a broken file, shard or sensor fills one, or a few in a
    row. Empty when what stands out lies anywhere else too, or is so much that it is the rule.

    Args:
        z: Id → its `deviations`.
        shown: Step → the ids it showed, in the order of steps.
    """
    out = {sample for sample in z if z[sample] > STANDS_OUT}
    steps = [step for step, ids in shown.items() if any(i in z for i in ids)]
    full = [
        step
        for step in steps
        if len(out.intersection(shown[step])) > max(FEW, len(shown[step]) // 2)
    ]
    if not full or 3 * len(full) > len(steps) or full[-1] - full[0] + 1 != len(full):
        return ()
    found = dict.fromkeys(i for step in full for i in shown[step] if z.get(i, 0.0) > RAISED)
    return tuple(found) if len(out.difference(found)) <= len(found) // 20 else ()


def most_replays(steps: int, batch: int) -> int:
    """Return how many replays one to three culprits take: log2 W + 2 log2 B + 4.

    Args:
        steps: Steps in the window, W.
        batch: Samples in each, B.
    """
    return math.ceil(math.log2(max(steps, 1)) + 2 * math.log2(max(batch, 1))) + 4


def _as_high(value: float) -> float:
    return value if math.isfinite(value) else math.inf
