"""Everything the decision tree may look at, gathered before it is walked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from stabexp.detectors.onset import ABNORMAL, loss_z
from stabexp.errors import StabexpError
from stabexp.records import VARIABLES, Change, Cure, Divergence, StepRecord, TrialRecord

NOTHING = "none"
"""Detector of a run that did not diverge and is examined all the same."""


COMPILED: Mapping[str, Any] = {
    "rule": "compiled_code_differs",
    "strength": "suspicious",
    "step": 0,
    "place": "torch.compile",
    "detail": "a replay that watches every operation takes another course than the run, which a "
    "replay that does not watch reproduces bit for bit: the code that runs is not the code as "
    "written",
    "remedy": "run this part eagerly, or find the option of torch.compile that changes it: with a "
    "memory budget below 1 random layers are recomputed with other draws",
    "cure": {"variable": "eager", "dose": "on"},
}
"""What it means when only the unwatched replay equals the run."""


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
    weight_decay: float = 0.0
    trivial_loss: float | None = None
    """What a model that knows nothing scores, None if unknown."""
    own_loop: bool = False
    """True when the training function is the user's, whose settings are not in the file."""
    streamed: bool = False
    """True when samples have no numbers of their own: ids then are those of whole batches."""

    @property
    def accumulate(self) -> int:
        """Micro-batches per update."""
        return max(1, self.batch_size // max(1, self.micro_batch))


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
class DataFacts:
    """What the search among the samples found."""

    verdict: Literal["bad_data", "hard_batch", "not_data", "undecided"]
    """hard_batch: the samples crash this state and no other, as other samples do not."""
    why: str
    samples: tuple[int, ...] = ()
    exact: bool = False
    """Whether every sample of the set was shown to be needed."""
    trials: tuple[str, ...] = ()
    cure: str = ""
    """Key of the trial without the samples that trained through."""
    looks: tuple[str, ...] = ()
    """What the samples look like next to others, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The diverged run and all trials of a bisect, ready to be judged."""

    setup: Setup
    divergence: Divergence
    records: Sequence[StepRecord]
    """Step records of the diverged run."""
    good_step: int
    gathered: frozenset[str] = frozenset()
    """Nodes of the decision tree whose replays were made."""
    controls: tuple[TrialRecord, ...] = ()
    watched: TrialRecord | None = None
    """The closely watched replay, when it took another course than the run: compiled code does."""
    placebos: tuple[TrialRecord, ...] = ()
    ladders: Mapping[str, LadderFacts] = field(default_factory=dict)
    beside: Mapping[str, LadderFacts] = field(default_factory=dict)
    """Ladders climbed only to show what else hides the symptom; no question looks at them."""
    tests: Mapping[str, TrialRecord] = field(default_factory=dict)
    """Suspected mechanisms switched off, by name: "operation", "schedule", "rule no_zero_grad"."""
    data: DataFacts | None = None
    """What the search among the samples found; None when it was not made."""
    data_trials: tuple[TrialRecord, ...] = ()
    """The replays of that search."""
    pairs: tuple[TrialRecord, ...] = ()
    """Two changes at once, tried when no single one cures."""
    modules: tuple[str, ...] = ()
    """Modules in which the cure has to act, where that was asked and only some have to."""
    repeats: tuple[TrialRecord, ...] = ()
    """The cure in further orders of the data, in which the crash comes without it."""
    disproved: Mapping[str, TrialRecord] = field(default_factory=dict)
    """Node of the tree → the replay in which the run crashed again although its fault was gone."""
    reversal: TrialRecord | None = None
    proof: TrialRecord | None = None
    fix_dose: float | int | str | None = None
    """Dose that the proof applied; the mildest cure's unless that failed."""
    point_of_no_return: int | None = None
    """Newest checkpoint from which the fix works, when the last good one was too late."""
    spent: bool = False
    """True when the budget was used up before all trials that were wanted had run."""
    variables: tuple[str, ...] = VARIABLES
    """Variables that may be changed."""

    def ladder(self, variable: str) -> LadderFacts:
        """Return what a variable's doses did; an empty ladder when it was not tried."""
        return self.ladders.get(variable, LadderFacts(variable=variable, skipped="not tried"))

    @property
    def non_finite(self) -> Mapping[str, Any] | None:
        """What the locator found in the unchanged replay, None for nothing that matters."""
        for record in self.controls:
            found = record.findings.get("locate")
            if found and not found.get("harmless"):
                return cast("Mapping[str, Any]", found)
        return None

    @property
    def broken_rules(self) -> tuple[Mapping[str, Any], ...]:
        """Rules of the training step that the unchanged replay broke, strongest first."""
        found: dict[str, Mapping[str, Any]] = {}
        for record in self.controls:
            for item in record.findings.get("rules") or ():
                found.setdefault(str(item["rule"]), item)
        if self.watched is not None and all(r.mismatch is None for r in self.controls):
            found["compiled_code_differs"] = COMPILED
        return tuple(sorted(found.values(), key=lambda item: item["strength"] != "certain"))


def undiverged(records: Sequence[StepRecord]) -> Divergence:
    """Return what stands in for a finding in a run that did not diverge: nothing, at its end.

    Raises:
        StabexpError: If no step was recorded.
    """
    if not records:
        raise StabexpError("no step was recorded, so there is nothing to examine")
    last = records[-1]
    return Divergence(
        detector=NOTHING,
        detected=last.step,
        onset=last.step,
        pattern="unclear",
        value=last.loss,
        limit=last.loss,
        message=f"no detector fired in {last.step + 1} steps",
    )


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
