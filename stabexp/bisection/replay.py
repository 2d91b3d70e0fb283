"""One trial: the same training function, from a checkpoint, with one thing changed.

This is the job that worker processes run. Everything it needs is on disk, and everything it finds
is on disk before it answers.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stabexp import instruments as watching
from stabexp import interventions as changing
from stabexp.bisection.facts import samples_of, undiverged
from stabexp.bisection.judging import Judgement, judge_trial
from stabexp.bisection.sample_taking import keep_views, views_without_training
from stabexp.bisection.trials import RECORD, Survey, finished_trial
from stabexp.detectors import last_good_step
from stabexp.errors import CheckpointError, StabexpError, TrackingError
from stabexp.instruments import Instrument
from stabexp.instruments.shown_batches import ShownBatches
from stabexp.records import (
    Change,
    Divergence,
    StepRecord,
    TrialRecord,
    TrialSpec,
    from_json,
    to_json,
)
from stabexp.state.checkpoints import CheckpointStore
from stabexp.state.fingerprint import differences
from stabexp.tasks.sample_figures import figures
from stabexp.tracking.manifest import read_json
from stabexp.tracking.run_directory import RunDirectory
from stabexp.training import Fork, Program, Run, execute, fingerprint_of, prepare
from stabexp.training.precision import FORMATS
from stabexp.training.seen import LOOP

COMPARED = ("loss", "grad_norm", "update_ratio", "param_norm", "digest", "lr")
"""Fields of a step record that an unchanged replay must reproduce bit for bit."""

EARLIER = 4096
"""Steps before the replay whose sample ids the rules get to see."""
LOOKED_AT = 64
"""Samples of a scan whose own figures are kept, to say what the culprits look like."""
LOCATED = 3
"""Steps before the onset from which every operation is watched."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The diverged run, as its replays need it."""

    directory: Path
    records: Sequence[StepRecord]
    divergence: Divergence
    trivial_loss: float | None = None
    """What a model that knows nothing scores, None if unknown."""
    seen: Mapping[str, Any] = field(default_factory=dict)
    """What its loop was seen to do: `training.seen`."""

    def precision(self, configured: str) -> str:
        """Return the number format of the run: as configured, or as its own loop has it."""
        return str(self.seen.get("precision") or configured)


def replay(
    spec: TrialSpec, *, program: Program, origin: Origin, trials: Path, trial: RunDirectory
) -> TrialRecord:
    """Run one trial and return what it showed; its step log is in `trial` by then."""
    started = time.perf_counter()
    records: list[StepRecord] = []
    store = None
    if spec.save_at:
        store = CheckpointStore(trial.directory("checkpoints"), keep=len(spec.save_at))

    def on_step(record: StepRecord) -> None:
        records.append(record)
        trial.log_step(record)

    batches = ShownBatches(latest=spec.role == "control")
    half = FORMATS[origin.precision(program.settings.precision)].half
    instruments = watching.build(
        {name: _arguments(name, spec, origin, program) for name in spec.instruments}
    )
    run = Run(
        program.settings,
        fork=_fork(spec, origin, trials),
        interventions=changing.build(_resolved(spec, origin), base=program.settings.base),
        until=spec.until_step,
        save_at=spec.save_at,
        checkpoints=store,
        on_step=on_step,
        extra_monitors=_closer(spec, half=half),
        instruments=(*instruments.values(), batches),
        judged=spec.role != "scan",
    )
    try:
        execute(program, run)
    finally:
        if store is not None:
            store.close()
    was = FORMATS[origin.precision(program.settings.precision)]
    if (
        spec.variable == "precision"
        and not run.precision_changed
        and run.number_format.autocast != was.autocast
    ):
        raise StabexpError(
            "the training function enters no autocast region, neither run.autocast() nor "
            "torch.autocast, so its precision cannot be changed"
        )
    judged = Judgement(
        outcome="inconclusive",
        start_loss=math.nan,
        end_loss=math.nan,
        note=f"{len(records)} samples were shown alone, without an update",
    )
    if spec.role != "scan":
        judged = judge_trial(
            spec,
            records,
            run.divergence,
            original=origin.records,
            crash=origin.divergence,
            trivial_loss=origin.trivial_loss,
        )
    found = _findings(instruments, spec, records, run)
    keep_views(trial, spec, run, records, found, batches=batches, original=origin.records)
    mismatch, mismatch_field = (
        first_mismatch(origin.records, records) if spec.role == "control" else (None, "")
    )
    return TrialRecord(
        spec=spec,
        outcome=judged.outcome,
        last_step=records[-1].step if records else spec.from_step - 1,
        divergence=run.divergence,
        start_loss=judged.start_loss,
        end_loss=judged.end_loss,
        mismatch=mismatch,
        mismatch_field=mismatch_field,
        metrics=summary(records) | _share(spec, records, origin),
        findings=found,
        seconds=time.perf_counter() - started,
        directory=trial.path.name,
        note="; ".join([judged.note, *(run.notices if spec.role == "control" else ())]),
    )


def _findings(
    instruments: Mapping[str, Instrument],
    spec: TrialSpec,
    records: Sequence[StepRecord],
    run: Run,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: seen
        for name, instrument in instruments.items()
        if (seen := instrument.findings()) is not None
    }
    for name, instrument in instruments.items():
        if failures := getattr(instrument, "failures", None):
            found[f"{name}_failures"] = dict(failures)
    if spec.role == "scan" and records and run.dataset is not None:
        ids = [record.sample_ids[0] for record in records[:LOOKED_AT]]
        found["figures"] = figures(run.dataset, ids)
    return found


def _share(spec: TrialSpec, records: Sequence[StepRecord], origin: Origin) -> dict[str, float]:
    """Return how many of the run's steps a scan of single samples was worth."""
    if spec.role != "scan":
        return {}
    usual = max((record.batch_size for record in origin.records), default=1) or 1
    return {"equivalent_steps": sum(record.batch_size for record in records) / usual}


def _arguments(name: str, spec: TrialSpec, origin: Origin, program: Program) -> dict[str, Any]:
    """Return the arguments of an instrument in a trial."""
    if name == "rules":
        earlier = [record for record in origin.records if record.step < spec.from_step]
        return {
            "planned_steps": program.settings.steps
            or origin.seen.get("steps")
            or origin.records[-1].step + 1,
            "earlier_rates": tuple(r.lr for r in earlier if math.isfinite(r.lr)),
            "earlier_updates": sum(not record.skipped for record in earlier),
            "earlier_ids": tuple(record.sample_ids for record in earlier[-EARLIER:]),
        }
    if name == "locate":
        # What made the first bad number ran in the step of the onset or later.
        return {"first_step": max(spec.from_step, origin.divergence.onset - LOCATED)}
    return {}


def _closer(spec: TrialSpec, *, half: bool) -> dict[str, Any]:
    """Return what an unchanged replay measures besides: each layer at every step."""
    if spec.role != "control":
        return {}
    layers: dict[str, Any] = {"layers": {"every": 1}} if "locate" in spec.instruments else {}
    return layers | ({"half_range": {}} if half else {})


def _resolved(spec: TrialSpec, origin: Origin) -> tuple[Change, ...]:
    """Return the changes, with "steps 20-22" turned into the ids of the samples seen there."""
    return tuple(
        replace(change, dose=",".join(str(i) for i in sorted(samples_of(change, origin.records))))
        if change.variable == "replace_samples" and str(change.dose).startswith("steps ")
        else change
        for change in spec.changes
    )


def _fork(spec: TrialSpec, origin: Origin, trials: Path) -> Fork | None:
    if spec.patch:
        return None  # the patched experiment runs from the start, as its user would run it
    earlier = [record for record in origin.records if record.step < spec.from_step]
    if not spec.from_trial:
        checkpoints = origin.directory / "checkpoints"
        return Fork(checkpoints=checkpoints, step=spec.from_step, records=earlier)
    cured = finished_trial(trials, spec.from_trial)
    assert cured is not None, spec.from_trial
    own = cured.read_steps()
    first = own[0].step if own else spec.from_step
    records = [r for r in earlier if r.step < first] + [r for r in own if r.step < spec.from_step]
    return Fork(checkpoints=cured.path / "checkpoints", step=spec.from_step, records=records)


def survey(origin: Origin, program: Program) -> Survey:
    """Return which checkpoints can be used, and what speaks against an exact replay.

    Raises:
        CheckpointError: If no checkpoint before the onset is undamaged, in its bytes and in its
            numbers.
    """
    store = CheckpointStore.reader(origin.directory / "checkpoints")
    usable: list[int] = []
    problems: list[str] = []
    for info in store.infos():
        if info.finite and info.step <= origin.divergence.onset:
            try:
                store.verify(info.step)
                usable.append(info.step)
            except CheckpointError as error:
                problems.append(str(error))
    good = last_good_step(origin.records, origin.divergence.onset, usable)
    if good is None:
        found = "\n".join(problems) or f"{store.directory}: holds no finite checkpoint before it"
        raise CheckpointError(
            f"no usable checkpoint before the onset at step {origin.divergence.onset}; "
            f"run the experiment again to make new ones\n{found}"
        )
    return Survey(
        good_step=good,
        from_scratch=0 in usable,
        starts=tuple(sorted(usable)),
        warnings=(*_other_machine(origin, program), *problems),
    )


def _other_machine(origin: Origin, program: Program) -> list[str]:
    """Return, as sentences, what differs between the machine of the run and this one."""
    file = origin.directory / "fingerprint.json"
    if not file.exists():
        return []
    prepare(program.settings)
    recorded, here = read_json(file), fingerprint_of(program)
    return [
        f"the run was not recorded as it is replayed: {text}"
        for text in differences(recorded, here)
    ]


def first_mismatch(
    original: Sequence[StepRecord], replayed: Sequence[StepRecord]
) -> tuple[int | None, str]:
    """Return the first step whose record differs in any bit, and the field; else (None, "")."""
    recorded = {record.step: record for record in original}
    for record in replayed:
        before = recorded.get(record.step)
        if before is None:
            continue
        for name in COMPARED:
            a, b = getattr(before, name), getattr(record, name)
            if a != b and str(a) != str(b):  # NaN is the same as NaN here
                return record.step, name
    return None, ""


def summary(records: Sequence[StepRecord]) -> dict[str, float]:
    """Return the figures of a trial that the decision tree asks for."""
    if not records:
        return {}
    count = len(records)
    found = {
        "clipped_share": sum(r.clip_coefficient < 1.0 for r in records) / count,
        "skipped_share": sum(r.skipped for r in records) / count,
        "early_grad_norm": statistics.median(r.grad_norm for r in records[:10]),
    }
    finite = [r.grad_norm for r in records if math.isfinite(r.grad_norm)]
    if finite and finite[0] > 0:
        found["burst_over_first"] = max(finite) / finite[0]
    half = [r.metrics for r in records if "half/zero_gradient_share" in r.metrics]
    if half:
        found["half_activation_absmax"] = max(m.get("half/activation_absmax", 0.0) for m in half)
        found["half_activation_nonfinite"] = sum(
            m.get("half/activation_nonfinite", 0.0) for m in half
        )
        found["half_zero_gradient_share"] = statistics.median(
            m["half/zero_gradient_share"] for m in half
        )
    first_bad = next((r for r in records if r.nonfinite_params or r.nonfinite_grads), None)
    if first_bad is not None:
        found["first_nonfinite_step"] = float(first_bad.step)
        clean = first_bad.nonfinite_grads == 0 and first_bad.loss - first_bad.loss == 0
        found["update_nonfinite_first"] = float(clean and first_bad.nonfinite_params > 0)
    return found


def _knowing(program: Program, seen: Mapping[str, Any]) -> Program:
    """Return the program with the ramp that its own loop was seen to have."""
    settings = program.settings
    ramp = int(seen.get("warmup_steps") or 0)
    if not program.own_loop or settings.warmup_steps or not ramp:
        return program
    return replace(program, settings=replace(settings, warmup_steps=ramp))


def job(
    directory: Path, build: Callable[[Mapping[str, Any]], Program]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the job that a worker process runs for a diverged run.

    Args:
        directory: The diverged run's directory.
        build: Patch (dotted experiment keys) → program.
    """
    run = RunDirectory.open(directory)
    records = run.read_steps()
    divergence = run.divergence() or undiverged(records)
    file = run.path / LOOP
    seen = read_json(file) if file.exists() else {}

    def built(patch: Mapping[str, Any]) -> Program:
        return _knowing(build(patch), seen)

    unpatched = built({})
    origin = Origin(
        directory=directory,
        records=records,
        divergence=divergence,
        trivial_loss=unpatched.describe().get("expected_initial_loss"),
        seen=seen,
    )

    def work(request: dict[str, Any]) -> dict[str, Any]:
        if "survey" in request:
            return asdict(survey(origin, unpatched))
        if "samples" in request:
            views = views_without_training(
                unpatched, request["samples"], ordinary=request["ordinary"], original=records
            )
            return {"samples": [to_json(view) for view in views]}
        spec = from_json(TrialSpec, request["spec"])
        trial = RunDirectory.open(Path(request["trial"]))
        trials = trial.path.parent
        program = built(spec.patch) if spec.patch else unpatched
        try:
            record = replay(spec, program=program, origin=origin, trials=trials, trial=trial)
        except TrackingError:
            raise  # a full disk says nothing about the trial
        except StabexpError as error:
            if spec.role == "control" or (
                isinstance(error, CheckpointError) and not spec.from_trial
            ):
                raise  # the whole bisect needs this
            record = TrialRecord(
                spec=spec,
                outcome="inconclusive",
                last_step=spec.from_step - 1,
                directory=trial.path.name,
                note=str(error),
            )
        trial.write_json(RECORD, to_json(record))
        return to_json(record)

    return work
