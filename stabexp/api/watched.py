"""The unchanged replay of a run that watched every operation and layer, where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stabexp.records import StepRecord, TrialRecord
from stabexp.tracking import RunDirectory

LOCATOR = "locate"
"""The instrument by which such a replay is known."""


def watched_replay(run_directory: RunDirectory) -> TrialRecord | None:
    """Return the latest unchanged replay of a run that watched every operation, None without."""
    from stabexp.bisection.trials import read_trials

    for bisect in reversed([c for c in run_directory.children() if c.kind == "bisect"]):
        for record in reversed(read_trials(bisect)):
            if record.spec.role == "control" and LOCATOR in record.spec.instruments:
                return record
    return None


def layered_steps(run_directory: RunDirectory, record: TrialRecord) -> list[StepRecord]:
    """Return the run's steps up to the replay, and the replay's, which measured every layer."""
    for bisect in reversed([c for c in run_directory.children() if c.kind == "bisect"]):
        trial = bisect.path / "trials" / record.directory
        if record.directory and (trial / "run.json").exists():
            replayed = RunDirectory.open(trial).read_steps()
            before = [r for r in run_directory.read_steps() if r.step < record.spec.from_step]
            return [*before, *replayed]
    return run_directory.read_steps()


def with_layers(
    run_directory: RunDirectory, records: Sequence[StepRecord]
) -> tuple[StepRecord, ...]:
    """Return a run's steps with the layers that an exact replay measured, where there is one."""
    known = watched_replay(run_directory)
    if known is None or known.mismatch is not None:
        return tuple(records)
    layers = {r.step: r.layers for r in layered_steps(run_directory, known) if r.layers}
    return tuple(replace(r, layers=layers.get(r.step, r.layers)) for r in records)
