"""Worlds in which it is written down what every replay does, for tests of what decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stabexp.bisection.facts import Setup, healthy_norm
from stabexp.bisection.ladder import Ladder, ladder_for
from stabexp.interventions.show_samples import read_batches
from stabexp.records import (
    VARIABLES,
    Divergence,
    Outcome,
    StepRecord,
    TrialRecord,
    TrialSpec,
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
    """What every replay of one diverged run does. What is not named crashes as the run did."""

    doses: Mapping[str, str] = field(default_factory=dict)
    """Variable → a letter per dose, mildest first: diverged, deLayed, cured, stalled, inconclusive.
    """
    tests: Mapping[str, str] = field(default_factory=dict)
    """What happens with one mechanism switched off: "hold_rate", "init_scale 0.05", … → a letter.
    """
    pairs: Mapping[str, str] = field(default_factory=dict)
    """The same for two changes at once: "precision + learning_rate"."""
    earlier: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Checkpoint → doses and tests that start there; one that is not named is like the last."""
    placebos: str = "dd"
    """What a slightly lower rate shows, and another order of the data."""
    earlier_placebos: Mapping[int, str] = field(default_factory=dict)
    """The same from an earlier checkpoint."""
    culprits: frozenset[int] = frozenset()
    """Samples each of which is enough for a crash. Without any, samples have no part in it."""
    fragile: bool = False
    """Whether another state can take the culprits."""
    touchy: bool = False
    """Whether other samples in place of any, innocent ones too, make the crash go away."""
    data: str = ""
    """What every replay with other samples shows, where not the culprits decide."""
    scan: str = "seen"
    """A scan of each sample alone: "seen" shows the culprits, "blind" does not, "pairs" needs two
    samples at a time, "broken" cannot be run."""
    locate: Mapping[str, Any] | None = None
    """Where the watched control saw the first number that is none."""
    rules: Sequence[Mapping[str, Any]] = ()
    """Which rules it saw broken."""
    half_modules: Mapping[str, Any] | None = None
    controls: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Step → what its control shows otherwise: fields of a trial record."""
    unwatched: Mapping[str, Any] = field(default_factory=dict)
    """What a control shows otherwise that no instrument watches."""
    digests: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Step at which a replay ends → the tensors of its steps, where these are written down."""
    kept_safe: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Dose of a kept operation → where the first number that is none is then."""
    reversal: str = "d"
    proofs: str = "cc"
    """What the proofs show, one after the other; all further ones are like the last."""
    orders: str = "d"
    """What the unchanged run shows in further orders of the data."""
    repeats: str = "c"
    """What the cure shows in them."""
    progress: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Variable → how far the loss falls at each dose that cures; 1 where not given."""
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Variable, or "control" → summary figures of its trials."""
    setup: Setup = SETUP
    good: int = GOOD
    starts: tuple[int, ...] = ()
    """Usable checkpoints; empty for step 0 and the last good one."""
    crash_moves: int | None = None
    """Steps by which every further dose of the rate postpones the crash."""
    crash: Divergence = field(default_factory=divergence)
    records: Sequence[StepRecord] = field(default_factory=step_records, repr=False)
    dataset_size: int | None = 10_000

    @property
    def checkpoints(self) -> tuple[int, ...]:
        return self.starts or tuple(sorted({0, self.good}))

    def trial(self, spec: TrialSpec, *, proofs_before: int = 0) -> TrialRecord:  # noqa: PLR0911
        """Return what a replay shows."""
        variables = [change.variable for change in spec.changes]
        match spec.role:
            case "control":
                return self._control(spec)
            case "scan":
                alone = all(len(batch) == 1 for batch in self.shown(spec).values())
                fails = self.scan == "broken" or (alone and self.scan == "pairs")
                return self._record(spec, "inconclusive" if fails else "cured")
            case "reversal":
                return self._record(spec, OUTCOMES[self.reversal])
            case "proof":
                letter = self.proofs[min(proofs_before, len(self.proofs) - 1)]
                return self._record(spec, OUTCOMES[letter])
            case "placebo" if variables == ["shuffle"] and spec.dose != 1:
                return self._record(spec, OUTCOMES[self.orders])
            case "placebo" if variables != ["replace_samples"]:
                near = spec.from_step == self.good
                letters = self.placebos if near else self.earlier_placebos.get(spec.from_step, "dd")
                return self._record(spec, OUTCOMES[letters[variables == ["shuffle"]]])
            case "data" | "placebo":
                return self._without_samples(spec)
        if variables[-1] == "shuffle":
            return self._record(spec, OUTCOMES[self.repeats])
        if len(variables) > 1 and (" + ".join(variables) in self.pairs or not self.culprits):
            return self._record(spec, OUTCOMES[self.pairs.get(" + ".join(variables), "d")])
        if len(variables) > 1 and "replace_samples" in variables:
            return self._without_samples(spec)
        if len(variables) > 1:
            return self._record(spec, OUTCOMES["d"])
        return self._changed(spec)

    def _control(self, spec: TrialSpec) -> TrialRecord:
        seen = {"locate": self.locate, "rules": self.rules, "half_modules": self.half_modules}
        seen["tensor_digests"] = self.digests.get(spec.until_step)
        found = {name: seen[name] for name in spec.instruments if seen[name] is not None}
        metrics = self.metrics.get("control", {})
        shown = replace(self._record(spec, "diverged", metrics=metrics), findings=found)
        otherwise = dict(self.controls.get(spec.from_step, {}))
        return replace(shown, **otherwise | ({} if spec.instruments else dict(self.unwatched)))

    def _changed(self, spec: TrialSpec) -> TrialRecord:
        """Return what one change shows: a dose of a ladder, or a mechanism switched off."""
        variable = str(spec.variable)
        start = self.good if variable == "warmup" else spec.from_step
        near = start == self.good or start not in self.earlier
        if variable not in VARIABLES:
            table = self.tests if near else self.earlier[start]
            letter = table.get(f"{variable} {spec.dose}", table.get(variable, "d"))
            shown = self._record(spec, OUTCOMES[letter])
            found = self.kept_safe.get(str(spec.dose))
            return replace(shown, findings={"locate": found}) if found else shown
        table = self.doses if near else self.earlier[start]
        ladder = self.ladder(variable)
        rung = ladder.doses.index(spec.dose)  # type: ignore[arg-type]
        letters = table.get(variable, "d" * len(ladder.doses))
        assert len(letters) == len(ladder.doses), (ladder, letters)
        made = self.progress.get(variable, [1.0] * len(letters))[rung]
        metrics = {"clipped_share": 0.1} | dict(self.metrics.get(variable, {}))
        shown = self._record(spec, OUTCOMES[letters[rung]], made=made, metrics=metrics)
        if self.crash_moves is None or shown.divergence is None or "rate" not in variable:
            return shown
        step = self.crash.detected + self.crash_moves * (rung + 1)
        return replace(shown, divergence=divergence(step, step - 6), last_step=step)

    def _without_samples(self, spec: TrialSpec) -> TrialRecord:
        """Return what a replay shows that replaces samples, or shows some of them first."""
        if self.data:
            return self._record(spec, OUTCOMES[self.data])
        shows = any(change.variable == "show_samples" for change in spec.changes)
        if self.touchy or (shows and self.fragile):
            return self._record(spec, "cured")
        at = next((s for s, ids in self.shown(spec).items() if self.culprits & set(ids)), None)
        if not self.culprits:
            at = self.crash.onset
        if at is None:
            return self._record(spec, "cured")
        found = divergence(min(at + DETECTED - ONSET, spec.until_step - 1), at)
        shown = self._record(spec, "diverged")
        return replace(shown, divergence=found, last_step=found.detected)

    def shown(self, spec: TrialSpec) -> dict[int, tuple[int, ...]]:
        """Return the sample ids of every step that a replay can make."""
        doses = {change.variable: str(change.dose) for change in spec.changes}
        replaced = {int(i) for i in doses.get("replace_samples", "").split(",") if i}
        batches = doses.get("show_samples") or doses.get("frozen_scan")
        shown = read_batches(batches) if batches else ()
        found = {}
        for number, step in enumerate(range(spec.from_step, spec.until_step)):
            ids = (2 * step, 2 * step + 1)
            ids = tuple(self._instead(i, replaced) for i in ids)
            found[step] = shown[number] if number < len(shown) else ids
        return found

    def _instead(self, sample: int, replaced: set[int]) -> int:
        while sample in replaced:
            sample = (sample + 1) % (self.dataset_size or 10_000)
        return sample

    def steps_of(self, record: TrialRecord) -> list[StepRecord]:
        """Return the step records of a replay: which samples it showed, and what a scan saw."""
        found = []
        scans = record.spec.role == "scan"
        for step, ids in self.shown(record.spec).items():
            if step > record.last_step:
                break
            bad = scans and self.scan != "blind" and self.culprits & set(ids)
            figure = 1e6 if bad else 1.0 + 0.3 * math.sin(2.1 * ids[0])
            found.append(
                StepRecord(
                    step=step, time=0.0, loss=figure, lr=0.1, grad_norm=figure, sample_ids=ids
                )
            )
        return found

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
        if spec.role == "proof" and not spec.from_trial:
            at = spec.until_step - 2  # as far as the cure went it has trained through
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
