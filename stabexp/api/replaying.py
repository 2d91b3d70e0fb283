"""Replay a run by hand, with something changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of, not_a_run, observed_loop
from stabexp.bisection.bisect_directory import bisect_directory
from stabexp.bisection.facts import undiverged
from stabexp.records import TrialRecord, TrialSpec
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader


def replay(
    run_id: str,
    assignments: Sequence[str] = (),
    *,
    from_step: int | None = None,
    steps: int | None = None,
    root: Path | str = DEFAULT_ROOT,
) -> tuple[TrialRecord, tuple[str, ...]]:
    """Replay a run from a checkpoint with something changed by hand; it is kept as a trial.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        assignments: "key=value": what to change, as in the experiment file; nothing: a control.
        from_step: The checkpoint to start from; None takes the last good one.
        steps: How many steps; None goes to the horizon that a bisect would take.
        root: Where runs are kept.

    Returns:
        What it showed, and what the user may not expect, one sentence each.

    Raises:
        RunNotFoundError: If there is no such run.
        ConfigError: If a key, a value or the checkpoint is not possible.
    """
    from stabexp.bisection.by_hand import changes_by_hand, dotted_keys
    from stabexp.bisection.inline_pool import InlinePool
    from stabexp.bisection.plan import Plan
    from stabexp.bisection.scope import kept_checkpoint
    from stabexp.bisection.trials import Progress, TrialRunner

    run_directory = find_run(run_id, root)
    if run_directory.kind != "run":
        raise not_a_run(run_id, run_directory)
    experiment, base = experiment_of(run_directory)
    records = run_directory.read_steps()
    crash = run_directory.divergence() or undiverged(records)
    pool = InlinePool("stabexp.experiment:replay_job", {"directory": str(run_directory.path)})
    with exclusive(run_directory.path / "bisect.lock"):
        directory = latest_bisect(run_directory)
        runner = TrialRunner(
            directory, pool, params=experiments.flat(experiment), progress=Progress()
        )
        survey = runner.survey()
        start = survey.good_step
        if from_step is not None:
            start = kept_checkpoint(from_step, survey.starts, option="--from")
        asked = changes_by_hand(
            assignments,
            settings=experiments.flat(experiment),
            keys=dotted_keys(experiments.Experiment),
            from_step=start,
            base=base,
        )
        steps_in_all = experiments.setup_of(experiment, observed=observed_loop(run_directory)).steps
        plan = Plan(divergence=crash, good_step=start, steps=steps_in_all)
        until = plan.until(start) if steps is None else start + steps
        spec = TrialSpec(
            role="manual" if asked.changes or asked.patch else "control",
            changes=asked.changes,
            patch=asked.patch,
            from_step=start,
            until_step=min(steps_in_all, until),
            reason="by hand: " + (", ".join(assignments) or "nothing changed"),
        )
        uploader = start_uploader(run_directory.path)
        try:
            (record,) = runner.run([spec])
        finally:
            uploader.poll()
    return record, asked.notices


def latest_bisect(run_directory: RunDirectory) -> RunDirectory:
    """Return the bisect that a trial made by hand belongs to: the latest, else a new one."""
    earlier = [child for child in run_directory.children() if child.kind == "bisect"]
    if earlier:
        return earlier[-1]
    made = bisect_directory(run_directory, {"variables": [], "budget": None}, again=False)
    made.finish("FINISHED")
    return made
