"""The one-at-a-time grid: every dose of the five classic variables, replayed once each.

It is what most people do by hand, and what the simpler ways to name a cause are computed from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from experiments.benchmark.results import Grid
from stabexp import interventions
from stabexp.api import Loaded
from stabexp.bisection.facts import healthy_norm
from stabexp.bisection.judging import judge_trial
from stabexp.experiment import program
from stabexp.records import Change, StepRecord, TrialSpec
from stabexp.training.execute import execute
from stabexp.training.fork import Fork
from stabexp.training.run import Run

BEYOND = 6
"""A cure is declared after this many times the steps that the crash took."""
AT_LEAST = 40
"""… and after this many more steps than it took, at least."""


def full_grid(loaded: Loaded, *, base: Path, from_step: int, trivial_loss: float | None) -> Grid:
    """Replay every dose from the last good checkpoint, warmup from the start.

    Args:
        loaded: A run that diverged.
        base: Folder of its experiment file.
        from_step: The last good checkpoint.
        trivial_loss: What a model scores that knows nothing, None if unknown.
    """
    crash = loaded.divergence
    assert crash is not None
    made = program(loaded.experiment, base=base)
    cures, replays, steps = [], 0, 0
    for change in _changes(loaded):
        start = 0 if change.variable == "warmup" else from_step
        distance = crash.detected - start + 1
        until = start + max(BEYOND * distance, distance + AT_LEAST)
        spec = TrialSpec(
            role="dose",
            changes=(change,),
            from_step=start,
            until_step=min(until, max(loaded.experiment.steps, crash.detected + AT_LEAST)),
        )
        before = [record for record in loaded.records if record.step < start]
        records: list[StepRecord] = []
        run = Run(
            made.settings,
            fork=Fork(checkpoints=loaded.directory / "checkpoints", step=start, records=before)
            if start
            else None,
            interventions=interventions.build([change]),
            until=spec.until_step,
            on_step=records.append,
        )
        execute(made, run)
        judged = judge_trial(
            spec,
            records,
            run.divergence,
            original=loaded.records,
            crash=crash,
            trivial_loss=trivial_loss,
        )
        replays, steps = replays + 1, steps + len(records)
        if judged.outcome == "cured":
            cures.append(change.variable)
    return Grid(cures=tuple(dict.fromkeys(cures)), replays=replays, steps=steps)


def _changes(loaded: Loaded) -> Iterator[Change]:
    assert loaded.divergence is not None
    for rate in (0.5, 0.25, 0.1):
        yield Change(variable="learning_rate", dose=rate)
    for steps in (25, 50):
        if steps > loaded.experiment.schedule.warmup_steps:
            yield Change(variable="warmup", dose=steps)
    norm = healthy_norm(loaded.records, loaded.divergence.onset)
    if norm > 0:
        for times in (2.0, 1.0, 0.5):
            yield Change(variable="clip_norm", dose=float(f"{times * norm:.3g}"))
    if loaded.experiment.precision not in {"fp32", "fp64"}:
        yield Change(variable="precision", dose="fp32")
    for times in (2, 4, 16):
        yield Change(variable="batch_size", dose=times)
