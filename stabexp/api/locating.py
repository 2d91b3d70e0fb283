"""`locate`: which operation made the first NaN or Inf, in which line, and why it may have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stabexp import experiment as experiments
from stabexp.api.drawing import draw_layers
from stabexp.api.replaying import latest_bisect
from stabexp.api.runs import experiment_of, not_a_run, observed_loop
from stabexp.api.watched import LOCATOR, layered_steps, watched_replay
from stabexp.errors import NotDivergedError
from stabexp.records import TrialRecord, TrialSpec
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader

if TYPE_CHECKING:
    from stabexp.findings.origin import Located


def locate(run_id: str, *, root: Path | str = DEFAULT_ROOT) -> Located:
    """Replay a diverged run from its last good checkpoint, watching every operation.

    A replay that did so before, for a bisect for example, is not made again.

    Args:
        run_id: The run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept.

    Raises:
        RunNotFoundError: If there is no such run.
        NotDivergedError: If it did not diverge.
        CheckpointError: If no checkpoint before the divergence can be read.
    """
    from stabexp.findings.gradients import first_layers
    from stabexp.findings.origin import Located, likely_reasons

    run_directory = find_run(run_id, Path(root))
    if run_directory.kind != "run":
        raise not_a_run(run_id, run_directory)
    divergence = run_directory.divergence()
    if divergence is None:
        raise NotDivergedError(
            f"run {run_directory.run_id}: did not diverge, so there is nothing to locate; its "
            f"state can be looked at: stabexp health {run_directory.run_id}"
        )
    home = "" if Path(root) == DEFAULT_ROOT else f" --root {root}"
    known = watched_replay(run_directory)
    record = known or _replayed(run_directory)
    found = record.findings.get(LOCATOR)
    told = found if found and not found.get("harmless") else None
    layers, sentence = first_layers(
        layered_steps(run_directory, record), divergence.onset, grows=True
    )
    return Located(
        run_id=run_directory.run_id,
        record=record,
        reused=known is not None,
        finding=told,
        reasons=likely_reasons(told) if told else (),
        layers=layers,
        layers_told=sentence,
        next_command=f"stabexp bisect {run_directory.run_id}{home}",
    )


def _replayed(run_directory: RunDirectory) -> TrialRecord:
    from stabexp.bisection.inline_pool import InlinePool
    from stabexp.bisection.trials import Progress, TrialRunner

    experiment, _ = experiment_of(run_directory)
    divergence = run_directory.divergence()
    assert divergence is not None
    steps = experiments.setup_of(experiment, observed=observed_loop(run_directory)).steps
    pool = InlinePool("stabexp.experiment:replay_job", {"directory": str(run_directory.path)})
    with exclusive(run_directory.path / "bisect.lock"):
        runner = TrialRunner(
            latest_bisect(run_directory),
            pool,
            params=experiments.flat(experiment),
            progress=Progress(),
        )
        spec = TrialSpec(
            role="control",
            from_step=runner.survey().good_step,
            until_step=min(steps, divergence.detected + 1),
            instruments=(LOCATOR,),
            reason="which operation made the first number that is not finite?",
        )
        uploader = start_uploader(run_directory.path)
        try:
            (record,) = runner.run([spec])
            draw_layers(run_directory)
        finally:
            uploader.poll()
    return record
