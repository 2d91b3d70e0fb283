"""Worlds in which it is written down what every replay does, for tests of what decides."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from stabexp.bisection.bisector import Bisector, Case
from stabexp.bisection.facts import Setup, healthy_norm
from stabexp.bisection.ladder import Ladder, ladder_for
from stabexp.bisection.optuna_study import Question
from stabexp.bisection.search import LadderAnswer, decide, next_questions
from stabexp.bisection.trials import Progress, Survey, TrialRunner
from stabexp.records import (
    VARIABLES,
    Divergence,
    Outcome,
    StepRecord,
    TrialRecord,
    TrialSpec,
    Verdict,
)

GOOD, ONSET, DETECTED, STEPS = 30, 40, 46, 400
OUTCOMES: dict[str, Outcome] = {
    "d": "diverged",
    "l": "delayed",
    "c": "cured",
    "s": "stalled",
    "i": "inconclusive",
}
SETUP = Setup(
    lr=0.1,
    warmup_steps=20,
    clip_norm=None,
    precision="fp32",
    batch_size=32,
    micro_batch=32,
    steps=STEPS,
)


def divergence(detected: int = DETECTED, onset: int = ONSET) -> Divergence:
    return Divergence(
        detector="loss_spike",
        detected=detected,
        onset=onset,
        pattern="exponential_growth",
        value=9.0,
        limit=4.0,
        message=f"loss 9 at step {detected} is above 4",
    )


def step_records(
    *,
    detected: int = DETECTED,
    onset: int = ONSET,
    slope: float = 0.02,
    noise: float = 0.05,
    bursts: Sequence[int] = (),
    burst: float = 15.0,
) -> list[StepRecord]:
    """Return a run that learns, and whose loss and gradient grow from the onset on."""
    found = []
    for step in range(detected + 1):
        # No random numbers: three waves that never fall into step with one another.
        wave = (math.sin(2.1 * step) + math.sin(3.7 * step) + math.sin(5.3 * step)) / 1.2
        loss, norm = 3.0 - slope * step + noise * wave, 1.0 + 0.05 * wave
        if step in bursts:
            norm = burst
        if step >= onset:
            loss += 0.8 * 2.0 ** (step - onset)
            norm *= 3.0 * 1.8 ** (step - onset)
        found.append(
            StepRecord(
                step=step,
                time=float(step),
                loss=loss,
                lr=0.1,
                grad_norm=norm,
                sample_ids=(2 * step, 2 * step + 1),
            )
        )
    return found


@dataclass(frozen=True, kw_only=True)
class World:
    """What every replay of one diverged run does."""

    doses: Mapping[str, str] = field(default_factory=dict)
    """Variable → a letter per dose, mildest first: diverged, deLayed, cured, stalled, inconclusive.
    Variables that are not named diverge at every dose."""
    scratch: Mapping[str, str] | None = None
    """The same for trials from step 0, when that is not the last good checkpoint."""
    placebos: str = "ddd"
    scratch_placebos: str = "ddd"
    data: str = "d"
    """What it shows with other samples in place of those the crash began with."""
    others: str = "d"
    """The same for as many innocent samples."""
    controls: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Step → what its control shows otherwise: fields of a trial record."""
    reversal: str = "d"
    proofs: str = "cc"
    """What the proofs show, first and second."""
    progress: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Variable → how far the loss falls at each dose that cures; 1 where not given."""
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Variable, or "control" → summary figures of its trials."""
    setup: Setup = SETUP
    good: int = GOOD
    from_scratch: bool = True
    crash_moves: int | None = None
    """Steps by which every further dose of the rate postpones the crash."""
    crash: Divergence = field(default_factory=divergence)
    records: Sequence[StepRecord] = field(default_factory=step_records, repr=False)
    dataset_size: int | None = 10_000

    def trial(self, spec: TrialSpec, *, proofs_before: int = 0) -> TrialRecord:  # noqa: PLR0911
        """Return what a replay shows."""
        match spec.role:
            case "control":
                shown = self._record(spec, "diverged", metrics=self.metrics.get("control", {}))
                return replace(shown, **self.controls.get(spec.from_step, {}))
            case "data":
                return self._record(spec, OUTCOMES[self.data])
            case "placebo" if spec.variable == "replace_samples":
                return self._record(spec, OUTCOMES[self.others])
            case "placebo":
                letters = self.placebos if spec.from_step == self.good else self.scratch_placebos
                place = ["0.97", "1.03", "1"].index(str(spec.dose))
                return self._record(spec, OUTCOMES[letters[place]])
            case "reversal":
                return self._record(spec, OUTCOMES[self.reversal])
            case "proof":
                return self._record(spec, OUTCOMES[self.proofs[proofs_before]])
        ladder = self.ladder(str(spec.variable))
        rung = ladder.doses.index(spec.dose)  # type: ignore[arg-type]
        scratch = spec.from_step == 0 and self.good > 0 and spec.variable != "warmup"
        table = self.scratch if scratch and self.scratch is not None else self.doses
        letters = table.get(ladder.variable, "d" * len(ladder.doses))
        assert len(letters) == len(ladder.doses), (ladder, letters)
        made = self.progress.get(ladder.variable, [1.0] * len(letters))[rung]
        metrics = {"clipped_share": 0.1} | dict(self.metrics.get(ladder.variable, {}))
        shown = self._record(spec, OUTCOMES[letters[rung]], made=made, metrics=metrics)
        if self.crash_moves is None or shown.divergence is None or "rate" not in ladder.variable:
            return shown
        step = self.crash.detected + self.crash_moves * (rung + 1)
        return replace(shown, divergence=divergence(step, step - 6), last_step=step)

    def ladder(self, variable: str) -> Ladder:
        """Return the ladder the bisect will climb."""
        found = ladder_for(
            variable,
            lr=0.1,
            healthy_norm=healthy_norm(self.records, self.crash.onset),
            clip_norm=self.setup.clip_norm,
            precision=self.setup.precision,
            batch_size=self.setup.batch_size,
            dataset_size=self.dataset_size,
            warmup_steps=self.setup.warmup_steps,
            total_steps=self.setup.steps,
        )
        assert isinstance(found, Ladder), found
        return found

    def _record(
        self,
        spec: TrialSpec,
        outcome: Outcome,
        *,
        made: float = 1.0,
        metrics: Mapping[str, float] | None = None,
    ) -> TrialRecord:
        distance = max(self.crash.detected - spec.from_step, 3)
        at = spec.from_step + distance * (3 if outcome == "delayed" else 1)
        if spec.role == "control":
            at = self.crash.detected
        fell = outcome in {"diverged", "delayed"}
        last = min(at, spec.until_step - 1) if fell else spec.until_step - 1
        if outcome == "inconclusive":
            last = spec.from_step - 1
        return TrialRecord(
            spec=spec,
            outcome=outcome,
            last_step=last,
            divergence=divergence(last, max(0, last - 6)) if fell else None,
            start_loss=2.4,
            end_loss={"cured": 2.4 - made, "stalled": 2.4}.get(outcome, 9.0),
            metrics=metrics or {},
            note=f"{outcome} as it is written",
        )


class ScriptedRunner(TrialRunner):
    """Looks trials up in a world instead of training; nothing is written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.notes: list[str] = []
        self.progress = Progress(note=self.notes.append)
        self.bisect: Any = SimpleNamespace(run_id="b1")
        self.records = []
        self.replayed_steps = 0
        self._queue: deque[TrialRecord] = deque()
        self._finished = {}

    @property
    def busy(self) -> int:
        return len(self._queue)

    def submit(self, spec: TrialSpec) -> None:
        if spec.key not in self._finished:
            proofs = sum(record.spec.role == "proof" for record in self.records)
            shown = self.world.trial(spec, proofs_before=proofs)
            self._finished[spec.key] = replace(shown, number=len(self._finished))
            self.replayed_steps += max(shown.steps, 0)
        self._queue.append(self._finished[spec.key])

    def wait(self) -> TrialRecord:
        self.records.append(self._queue.popleft())
        return self.records[-1]

    def recall(self, key: str) -> TrialRecord:
        return self._finished[key]

    def survey(self) -> Survey:
        return Survey(good_step=self.world.good, from_scratch=self.world.from_scratch)


class PlainStudies:
    """Dose searches kept in memory, with the interface of `DoseStudies`."""

    def __init__(self) -> None:
        self.told: dict[str, dict[int, dict[str, Any]]] = {}
        self.open: dict[str, set[int]] = {}

    def __enter__(self) -> PlainStudies:
        return self

    def __exit__(self, *error: object) -> None:
        assert not any(self.open.values()), "questions were left open"

    def reopen(self) -> int:
        return 0

    def _outcomes(self, ladder: Ladder) -> dict[int, Outcome]:
        return {i: told["outcome"] for i, told in self.finished(ladder).items()}

    def ask(self, ladder: Ladder) -> Question | None:
        running = self.open.setdefault(ladder.variable, set())
        count = len(ladder.doses)
        found = next_questions(self._outcomes(ladder), count=count, running=running)
        if not found:
            return None
        running.add(found[0])
        return Question(ladder=ladder, index=found[0], number=found[0])

    def tell(self, question: Question, outcome: Outcome, *, attributes: Mapping[str, Any]) -> None:
        variable = question.ladder.variable
        self.open[variable].remove(question.index)
        told = {**attributes, "outcome": outcome}
        self.told.setdefault(variable, {})[question.index] = told

    def answer(self, ladder: Ladder) -> LadderAnswer | None:
        outcomes = self._outcomes(ladder)
        decision = decide(outcomes, count=len(ladder.doses))
        if decision is None:
            return None
        return LadderAnswer(ladder=ladder, decision=decision, outcomes=outcomes)

    def finished(self, ladder: Ladder) -> dict[int, dict[str, Any]]:
        return self.told.get(ladder.variable, {})


def case_of(world: World, *, own_loop: bool = False) -> Case:
    return Case(
        run_id="r1",
        records=world.records,
        divergence=world.crash,
        setup=world.setup,
        dataset_size=world.dataset_size,
        own_loop=own_loop,
        source="exp.yaml",
    )


def bisector_of(
    world: World,
    *,
    variables: Sequence[str] = VARIABLES,
    budget: int | None = None,
    own_loop: bool = False,
) -> Bisector:
    phases: dict[str, PlainStudies] = {}
    return Bisector(
        case_of(world, own_loop=own_loop),
        ScriptedRunner(world),
        open_studies=lambda phase: phases.setdefault(phase, PlainStudies()),  # type: ignore[arg-type,return-value]
        variables=variables,
        budget=budget,
    )


def bisect(world: World, **options: Any) -> Verdict:
    return bisector_of(world, **options).bisect()


def assert_well_formed(verdict: Verdict, bisector: Bisector) -> None:
    """What holds of every verdict, whatever the trials did."""
    facts = bisector.facts
    known = {record.spec.key: record for record in bisector.runner.records}
    decisive = [step for step in verdict.path if step.decisive]
    assert decisive == [verdict.path[-1]]
    assert 0.0 <= verdict.confidence <= 1.0
    assert all(key in known for step in verdict.path for key in step.trials)
    assert all(key in known for item in verdict.ruled_out for key in item.trials)
    assert verdict.trials == len(known)
    assert verdict.summary
    assert not any(word in verdict.summary.lower() for word in ("none", "nan", "..", " ."))
    assert len({step.node for step in verdict.path}) == len(verdict.path)
    assert all(item.variable != verdict.cause for item in verdict.ruled_out)
    assert all(cure.trial not in facts.ladder(cure.variable).slow for cure in verdict.cures)
    if verdict.cause == "inconclusive":
        assert verdict.confidence == 0.0
    if verdict.cause not in VARIABLES:
        assert verdict.fix == {}
        assert not verdict.fix_proved
        return
    # Nobody is blamed without a control that crashes, a cure that is robust and what follows it.
    assert facts.controls
    assert all(r.divergence and r.mismatch is None for r in facts.controls)
    starts = {record.spec.from_step for record in facts.controls}
    cure = facts.ladder(verdict.cause).cure
    assert cure is not None
    assert cure.robust
    assert known[cure.trial].outcome == "cured"
    assert known[cure.trial].spec.from_step in starts
    assert all(record.outcome != "cured" for record in facts.placebos)
    assert facts.reversal is None or facts.reversal.outcome not in {"cured", "stalled"}
    assert facts.proof is None or facts.proof.outcome in {"cured", "inconclusive"}
    assert verdict.fix
    assert verdict.fix_proved == (facts.proof is not None and facts.proof.outcome == "cured")
    assert {item.variable for item in verdict.ruled_out} == set(VARIABLES) - {verdict.cause}
