"""Diagnostic mode: what does the restored model say of the batches, and which layers crash?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stabexp import experiment as experiments
from stabexp.api.replaying import latest_bisect
from stabexp.api.runs import experiment_of, not_a_run, observed_loop, refuse_while_loading
from stabexp.errors import NotDivergedError
from stabexp.records import Change, Outcome, StepRecord, TrialSpec
from stabexp.recovery.layers import (
    BatchLoss,
    LayerDiagnosis,
    all_but,
    came_back,
    layers_of,
    only,
)
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, exclusive, find_run
from stabexp.tracking.uploader import start_uploader

if TYPE_CHECKING:
    from stabexp.bisection.trials import Progress, TrialRunner

SHOWN = 16
"""Batches up to the crash that the restored model is shown."""


def diagnose_layers(
    run_id: str, *, root: Path | str = DEFAULT_ROOT, progress: Progress | None = None
) -> LayerDiagnosis:
    """Evaluate the last good state on the batches of the crash, and unfreeze layer by layer.

    Args:
        run_id: The diverged run's id, the beginning of it, or its MLflow run id.
        root: Where runs are kept.
        progress: Told what is being tried.

    Raises:
        RunNotFoundError: If there is no such run.
        NotDivergedError: If it did not diverge.
        CheckpointError: If no checkpoint before the divergence can be read.
    """
    from stabexp.bisection.inline_pool import InlinePool
    from stabexp.bisection.trials import Progress, TrialRunner

    refuse_while_loading("stabexp.diagnose_layers")
    directory = find_run(run_id, root)
    if directory.kind != "run":
        raise not_a_run(run_id, directory)
    if directory.divergence() is None:
        raise NotDivergedError(f"run {directory.run_id}: it did not diverge; nothing to diagnose")
    experiment, _ = experiment_of(directory)
    planned = experiments.setup_of(experiment, observed=observed_loop(directory)).steps
    place = {"directory": str(directory.path)}
    uploader = start_uploader(directory.path)
    try:
        with (
            exclusive(directory.path / "bisect.lock"),
            InlinePool("stabexp.experiment:replay_job", place) as pool,
        ):
            runner = TrialRunner(
                latest_bisect(directory),
                pool,
                params=experiments.flat(experiment),
                progress=progress or Progress(),
            )
            return _Layers(directory, runner, planned=planned).found()
    finally:
        uploader.poll()


class _Layers:
    """One diagnosis."""

    def __init__(self, directory: RunDirectory, runner: TrialRunner, *, planned: int) -> None:
        found = directory.divergence()
        assert found is not None
        self.directory, self.runner, self.crash = directory, runner, found
        self.records = directory.read_steps()
        self.start = runner.survey().good_step
        self.until = min(planned, found.detected + max(20, found.detected - self.start + 1))

    def found(self) -> LayerDiagnosis:
        from stabexp.state.checkpoints import CheckpointStore

        saved = CheckpointStore.reader(self.directory.path / "checkpoints").load(self.start)
        model = saved.objects["model"]
        assert model is not None
        trained = [name for name, wanted in model["value"]["requires_grad"].items() if wanted]
        layers = layers_of(trained)
        alone = {name: self._outcome(only([name]), f"only {name} learns") for name in layers}
        without = {name: self._outcome(all_but(name), f"all but {name} learn") for name in layers}
        above: tuple[str, ...] = ()
        if not any(came_back(outcome) for outcome in alone.values()):
            above = self._from_the_top(layers)
        return LayerDiagnosis(
            run_id=self.directory.run_id,
            from_step=self.start,
            detected=self.crash.detected,
            batches=self._batches(),
            held_out=_held_out(self.records, self.start),
            alone=alone,
            without=without,
            from_the_top=above,
        )

    def _from_the_top(self, layers: Sequence[str]) -> tuple[str, ...]:
        """Unfreeze from the output down until the crash comes back; more layers crash no less."""
        order = list(reversed(layers))
        low, high = 1, len(order)  # with `high` of them it crashes: that is the run itself
        while high - low > 1:
            middle = (low + high) // 2
            names = order[:middle]
            crashed = came_back(self._outcome(only(names), f"the last {middle} layers learn"))
            low, high = (low, middle) if crashed else (middle, high)
        return tuple(order[:high])

    def _outcome(self, dose: str, reason: str) -> Outcome:
        change = Change(variable="layer_rate", dose=dose)
        (record,) = self.runner.run([self._spec(change, f"diagnosis: {reason}", self.until)])
        return record.outcome

    def _batches(self) -> tuple[BatchLoss, ...]:
        """Show the batches up to the crash to the restored model, without any update."""
        last = self.crash.detected
        change = Change(variable="skip_updates", dose=f"{self.start}-{last}")
        spec = self._spec(change, "diagnosis: what is each batch to the restored model?", last + 1)
        (record,) = self.runner.run([spec])
        recorded = {r.step: r.loss for r in self.records}
        shown = self.runner.steps_of(record)[-SHOWN:]
        return tuple(
            BatchLoss(step=r.step, recorded=recorded.get(r.step, math.nan), restored=r.loss)
            for r in shown
        )

    def _spec(self, change: Change, reason: str, until: int) -> TrialSpec:
        return TrialSpec(
            role="test",
            changes=(change,),
            from_step=self.start,
            until_step=until,
            reason=reason,
        )


def _held_out(records: Sequence[StepRecord], start: int) -> dict[str, tuple[float, float]]:
    """Return metrics that look like a loss on held-out data: before the checkpoint and last."""
    names = {name for r in records for name in r.metrics}
    found = {}
    for name in sorted(names):
        if not any(word in name.lower() for word in ("val", "eval", "held", "test")):
            continue
        before = [r.metrics[name] for r in records if r.step < start and name in r.metrics]
        after = [r.metrics[name] for r in records if name in r.metrics]
        if before and after:
            found[name] = (before[-1], after[-1])
    return found
