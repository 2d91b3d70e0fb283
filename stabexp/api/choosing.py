"""Chooses a remedy for a diverged run: a verdict's fix, or a rule that passes its trial.

A rule is only a suspicion. So each remedy is first tried in a short replay through the danger
window, where one that does not cure costs a few steps instead of a rollback.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stabexp import experiment as experiments
from stabexp.api.bisecting import bisect
from stabexp.api.loading import load
from stabexp.api.replaying import latest_bisect
from stabexp.api.runs import experiment_of, observed_loop
from stabexp.bisection.by_hand import changes_by_hand, dotted_keys
from stabexp.bisection.data_case import deviations, flagged, scores_of
from stabexp.bisection.inline_pool import InlinePool
from stabexp.bisection.plan import Plan
from stabexp.bisection.trials import Progress, Survey, TrialRunner
from stabexp.errors import CheckpointError, ConfigError
from stabexp.experiment.assignments import as_yaml
from stabexp.records import Change, Divergence, StepRecord, TrialRecord, TrialSpec, Verdict
from stabexp.recovery import (
    Picture,
    Remedy,
    Window,
    best_rate,
    learns_best,
    remedies_for,
    window_after,
    with_samples,
)
from stabexp.state.checkpoints import CheckpointStore
from stabexp.tracking import RunDirectory

SOON = 8
"""Steps within which the next bad sample of a row of them must come."""
ROUNDS = 5
"""How often more bad samples are left out, as replays crash on them."""
COMPOUND = ("fresh_optimizer", "conservative", "restart")
"""Remedies of several changes, chosen for want of a single one."""
SCANNED = 512
"""Most samples that the restored model is shown alone."""
FINALISTS, LONGER = 3, 3
"""How many remedies are compared for longer, and for how many times the danger window."""
LOOKED_BACK = 4
"""Steps before the onset whose samples are scanned besides those at it."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A remedy, where to start with it, and what was checked of that state."""

    remedy: Remedy
    fork: int
    window: Window
    checks: tuple[str, ...] = ()
    replayed: int = 0
    """Steps that trials replayed for it in this process."""
    verdict: str = ""


class Chooser:
    """Looks closely at one diverged run."""

    def __init__(self, directory: RunDirectory, *, root: Path, progress: Progress | None) -> None:
        self.directory = directory
        self.root = root
        self.progress = progress or Progress()
        found = directory.divergence()
        assert found is not None
        self.crash: Divergence = found
        self.records: list[StepRecord] = directory.read_steps()
        self.experiment, _ = experiment_of(directory)
        facts = directory.read_json("data.json")
        self.setup = experiments.setup_of(
            self.experiment,
            trivial_loss=facts.get("trivial_loss"),
            observed=observed_loop(directory),
        )
        self.steps = self.setup.steps

    def by_verdict(self, *, workers: int | None) -> tuple[Verdict, Choice | None]:
        """Bisect, unless that is done, and return the verdict and its fix, None without one."""
        verdict = bisect(
            self.directory.run_id,
            root=self.root,
            workers=workers,
            progress=self.progress,
            drain_seconds=0.0,
        )
        trials = load(self.directory.run_id, root=self.root).trial_records
        fix, best = best_rate(verdict, trials)
        remedy = self._fix(replace(verdict, fix=fix, summary=f"{verdict.summary}{best}"))
        if remedy is None:
            return verdict, None
        fork = verdict.good_step
        if verdict.point_of_no_return is not None:
            fork = min(fork, verdict.point_of_no_return)
        if remedy.from_scratch:
            fork = 0
        control = next(
            (t for t in trials if t.spec.role == "control" and t.spec.from_step == fork), None
        )
        choice = Choice(
            remedy=remedy,
            fork=fork,
            window=window_after(fork, self.crash, steps=self.steps),
            checks=self.checks(fork, control),
            replayed=verdict.replayed_steps,
            verdict=f"{verdict.cause} (confidence {verdict.confidence:.2f}): {verdict.summary}",
        )
        return verdict, choice

    def _fix(self, verdict: Verdict) -> Remedy | None:
        if verdict.cause == "not_reproduced":
            return Remedy(name="plain_resume", why=verdict.summary)
        if not verdict.fix:
            return None
        settings = experiments.flat(self.experiment)
        given = [f"{key}={as_yaml(value)}" for key, value in verdict.fix.items()]
        if verdict.good_step:
            try:
                asked = changes_by_hand(
                    given,
                    settings=settings,
                    keys=dotted_keys(experiments.Experiment),
                    from_step=verdict.good_step,
                )
            except ConfigError:
                pass  # a setting that decides how the run begins: it has to begin again
            else:
                if not any(change.variable == "warmup" for change in asked.changes):
                    return Remedy(name="verdict_fix", why=verdict.summary, changes=asked.changes)
        return Remedy(
            name="verdict_fix", why=verdict.summary, settings=dict(verdict.fix), from_scratch=True
        )

    def by_rules(self, tried: Collection[str], *, samples_blamed: bool) -> Choice | None:
        """Return the first remedy not yet `tried` that passes its trial; None when none is left.

        Args:
            tried: The reasons (`Remedy.why`) of remedies that a run crashed with.
            samples_blamed: Whether an earlier crash was answered by replacing samples.
        """
        place = {"directory": str(self.directory.path)}
        with InlinePool("stabexp.experiment:replay_job", place) as pool:
            runner = TrialRunner(
                latest_bisect(self.directory),
                pool,
                params=experiments.flat(self.experiment),
                progress=self.progress,
            )
            return self._by_rules(runner, tried, samples_blamed)

    def _by_rules(
        self, runner: TrialRunner, tried: Collection[str], samples_blamed: bool
    ) -> Choice | None:
        fork, control = self._start(runner)
        plan = Plan(divergence=self.crash, good_step=fork, steps=self.steps)
        window = window_after(fork, self.crash, steps=self.steps)
        picture = self._picture(runner, plan, control)
        picture = replace(picture, samples_blamed=samples_blamed)
        checks = self.checks(fork, control)
        survived: list[tuple[float, Remedy]] = []
        for remedy in remedies_for(picture):
            if remedy.why in tried or (remedy.from_scratch and (survived or not fork)):
                continue
            if remedy.from_scratch:
                window = window_after(0, self.crash, steps=self.steps)
                fork, checks = 0, ()
            passed = (0.0, remedy)
            if remedy.changes and not remedy.from_scratch:
                found = self._tried(runner, remedy, window)
                if found is None:
                    continue
                passed = found
            survived.append(passed)
            if not remedy.conservative:
                break
        chosen = self._looked_at_longer(runner, survived, window)
        if (chosen is None or chosen.name in COMPOUND) and picture.reproduced:
            single = [
                r for r in remedies_for(picture) if len(r.changes) == 1 and r.why not in tried
            ]
            further = self._further_back(runner, plan.good_step, single)
            if further is not None:
                return further
        if chosen is None:
            return None
        return Choice(
            remedy=chosen,
            fork=fork,
            window=window,
            checks=checks,
            replayed=runner.replayed_steps,
        )

    def _further_back(
        self, runner: TrialRunner, fork: int, single: Sequence[Remedy]
    ) -> Choice | None:
        """Try single remedies from the checkpoint before the last good one, None when none cures.

        The last good one may hold damage that no figure showed yet: a momentum with a burst in it.
        """
        earlier = max((s for s in runner.survey().starts if s < fork), default=None)
        if earlier is None:
            return None
        plan = Plan(divergence=self.crash, good_step=earlier, steps=self.steps)
        (control,) = runner.run([plan.control(earlier, watched=False)])
        window = window_after(earlier, self.crash, steps=self.steps)
        survived: list[tuple[float, Remedy]] = []
        for remedy in single:
            passed = self._tried(runner, remedy, window)
            if passed is not None:
                survived.append(passed)
                if not remedy.conservative:
                    break
        chosen = self._looked_at_longer(runner, survived, window)
        if chosen is None:
            return None
        return Choice(
            remedy=chosen,
            fork=earlier,
            window=window,
            checks=self.checks(earlier, control),
            replayed=runner.replayed_steps,
        )

    def _looked_at_longer(
        self, runner: TrialRunner, survived: Sequence[tuple[float, Remedy]], window: Window
    ) -> Remedy | None:
        """Return the remedy that learns best, None for none.

        Of rates, the one that is ahead at first is often the highest that holds, and not the one
        that ends lowest. So where there is a choice the best few go on for longer.
        """
        rivals = [(end, r) for end, r in survived if r.conservative and not r.from_scratch]
        best = sorted(end for end, _ in rivals)[:FINALISTS]
        finalists = [r for end, r in rivals if end <= best[-1]] if best else []
        if len(finalists) < 2:
            return learns_best(survived)
        longer = LONGER * (window.last - window.first)
        last = min(self.steps, window.first + longer)
        further = [self._tried(runner, r, replace(window, last=last)) for r in finalists]
        return learns_best([found for found in further if found]) or learns_best(survived)

    def _start(self, runner: TrialRunner) -> tuple[int, TrialRecord]:
        """Return a checkpoint that can be trusted, and the unchanged replay from it.

        A state can be restored whole and still not be the one that trained on. So the first step
        made again must equal the recorded one bit for bit; where it does not, an earlier
        checkpoint is tried, and where none does, the training is not deterministic.
        """
        survey: Survey = runner.survey()
        starts = [step for step in survey.starts if step <= survey.good_step]
        first: tuple[int, TrialRecord] | None = None
        for step in sorted(starts, reverse=True)[:3]:
            plan = Plan(divergence=self.crash, good_step=step, steps=self.steps)
            (control,) = runner.run([plan.control(step, half=False)])
            first = first or (step, control)
            if control.mismatch != step:
                return step, control
        assert first is not None
        return first

    def _picture(self, runner: TrialRunner, plan: Plan, control: TrialRecord) -> Picture:
        located = control.findings.get("locate")
        picture = Picture(
            records=self.records,
            crash=self.crash,
            fork=plan.good_step,
            settings=self._settings(),
            reproduced=control.divergence is not None,
            located=None if not located or located.get("harmless") else located,
            broken=control.findings.get("rules") or (),
            half="16" in self.setup.precision,
        )
        if picture.reproduced and picture.batch_at_fault is not None and not self.setup.streamed:
            return self._scanned(runner, plan, picture)
        return picture

    def _scanned(self, runner: TrialRunner, plan: Plan, picture: Picture) -> Picture:
        """Show the restored model each sample of the steps around the onset alone."""
        first = max(plan.good_step, self.crash.onset - LOOKED_BACK)
        last = max(self.crash.onset, picture.batch_at_fault or 0)
        ids = picture.samples(first, last)[:SCANNED]
        if len(ids) < 8:
            return picture
        scan = TrialSpec(
            role="scan",
            changes=(Change(variable="frozen_scan", dose=",".join(map(str, ids))),),
            from_step=plan.good_step,
            until_step=plan.good_step + len(ids),
            reason="which samples stand out when the restored model sees each alone?",
        )
        (record,) = runner.run([scan])
        if record.outcome == "inconclusive" and record.last_step < plan.good_step:
            return picture
        return replace(picture, flagged=flagged(deviations(scores_of(runner.steps_of(record)))))

    def _tried(
        self, runner: TrialRunner, remedy: Remedy, window: Window
    ) -> tuple[float, Remedy] | None:
        """Return the loss at the end of a replay with a remedy that cures, None when none does.

        Bad samples may be followed by more of them, or have a bad one put in their place: then a
        replay without them crashes on another batch, and that one's samples are left out as well.
        """
        until = self.crash.detected
        for _ in range(ROUNDS):
            record = self._trial(runner, remedy, window)
            if record.outcome == "cured":
                return record.end_loss, remedy
            crash = record.divergence
            if remedy.name != "replace_samples" or crash is None:
                return None
            if crash.onset > until + SOON:
                return None  # on others, much later: then it is not these samples
            until = max(until, crash.detected)
            earlier = [r for r in self.records if r.step < window.first]
            seen = [*earlier, *runner.steps_of(record)]
            again = Picture(records=seen, crash=crash, fork=window.first)
            # Where it was ruined before a batch could stand out, the bad ones are among the last.
            more = again.samples(again.batch_at_fault or crash.onset - 1, crash.detected)
            remedy = with_samples(remedy, more)
        return None

    def _trial(self, runner: TrialRunner, remedy: Remedy, window: Window) -> TrialRecord:
        until = window.last
        if remedy.name == "replace_samples":  # the next one like it may take its time
            until = min(self.steps, window.first + 2 * (window.last - window.first))
        spec = TrialSpec(
            role="test",
            changes=remedy.changes,
            from_step=window.first,
            until_step=until,
            reason=f"recovery: {remedy.name.replace('_', ' ')}: {remedy.why}",
        )
        (record,) = runner.run([spec])
        return record

    def _settings(self) -> Mapping[str, Any]:
        setup = self.setup
        found: dict[str, Any] = {
            "warmup_steps": setup.warmup_steps,
            "clip_norm": setup.clip_norm,
            "precision": setup.precision,
            "batch_size": setup.batch_size,
            "lr": setup.lr,
            "weight_decay": setup.weight_decay,
            "trivial_loss": setup.trivial_loss,
        }
        return found

    def checks(self, fork: int, control: TrialRecord | None) -> tuple[str, ...]:
        """Return what was checked of the state to go on from, one sentence each (A13).

        Raises:
            CheckpointError: If its data position is not the one of the records.
        """
        store = CheckpointStore.reader(self.directory.path / "checkpoints")
        snapshot = store.load(fork)
        found = [f"checkpoint of step {fork}: its checksum is right"]
        found[0] += ", every parameter and buffer is finite" if snapshot.finite else ", NOT FINITE"
        position = int(snapshot.extra["position"])
        recorded = next((r.position for r in self.records if r.step == fork), None)
        if recorded is not None and recorded != position:
            raise CheckpointError(
                f"{store.directory}: the checkpoint of step {fork} stands at sample {position} of "
                f"the data, the record of that step at {recorded}; use an earlier checkpoint"
            )
        found.append(f"data position: {position} samples consumed, as recorded")
        if control is not None:
            found.append(_replayed(fork, control))
        return tuple(found)


def _replayed(fork: int, control: TrialRecord) -> str:
    if control.mismatch is None:
        return f"steps {fork} to {control.last_step} made again: equal to the records bit for bit"
    if control.mismatch > fork:
        return (
            f"steps {fork} to {control.mismatch - 1} made again: equal to the records bit for bit; "
            f"step {control.mismatch} differs in {control.mismatch_field}"
        )
    return (
        f"step {fork} made again differs from its record in {control.mismatch_field}: the training "
        "is not deterministic, or the record is of a disturbed step"
    )
