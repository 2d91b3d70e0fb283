"""Everything recorded of a run, in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of, not_a_run
from stabexp.records import Divergence, StepRecord, TrialRecord, Verdict
from stabexp.tracking import DEFAULT_ROOT, find_run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Everything recorded of a run."""

    run_id: str
    directory: Path
    experiment: experiments.Experiment
    records: tuple[StepRecord, ...]
    divergence: Divergence | None
    trials: tuple[TrialRecord, ...]
    """Trials of the latest bisect, in the order in which they finished."""
    verdict: Verdict | None

    @property
    def steps(self) -> pd.DataFrame:
        """One row per step."""
        from stabexp.tracking.frames import steps_frame

        return steps_frame(self.records)

    @property
    def trials_table(self) -> pd.DataFrame:
        """One row per trial."""
        from stabexp.tracking.frames import trials_frame

        return trials_frame(self.trials)


def load(run_id: str, *, root: Path | str = DEFAULT_ROOT) -> Loaded:
    """Return everything recorded of a run, finished or not.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    directory = find_run(run_id, root)
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    experiment, _ = experiment_of(directory)
    trials: tuple[TrialRecord, ...] = ()
    verdict = None
    bisects = [child for child in directory.children() if child.kind == "bisect"]
    if bisects:
        from stabexp.bisection.trials import read_trials

        trials = read_trials(bisects[-1])
        if (bisects[-1].path / "verdict.json").exists():
            verdict = bisects[-1].read_record(Verdict, "verdict.json")
    return Loaded(
        run_id=directory.run_id,
        directory=directory.path,
        experiment=experiment,
        records=tuple(directory.read_steps()),
        divergence=directory.divergence(),
        trials=trials,
        verdict=verdict,
    )
