"""Which replays a bisect makes: where they start, how long they run, and why.

A cure is only believed after six times the steps the unchanged replay needs to diverge (at least
forty more): of replays that looked cured after twice that time, 27 % diverged later; after six
times, 7 %. The run's own planned end is a natural horizon too, so no replay goes past it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stabexp.bisection.facts import Setup
from stabexp.bisection.ladder import Dose, Ladder
from stabexp.records import Change, Divergence, Role, TrialSpec

WATCHED = ("locate", "rules")
"""Instruments on the unchanged replay from the last good checkpoint."""
CHECKED_STEPS = 40
"""Steps in which the rules of a run that did not diverge are watched."""

HORIZON_FACTOR = 6
HORIZON_LEAST = 40
PROOF_LEAST = 20
"""Fewest steps that a proof goes on for."""
WAIT_LEAST, WAIT = 60, 100
"""Fewest and most steps to wait for a second strike of what struck once."""
SEARCH_FACTOR = 3
SEARCH_LEAST = 25
"""How far a change is followed while it is searched for; what is named goes on to the horizon."""
CONTROL_GRACE = 20
"""Steps a control may go on past the recorded divergence before it counts as stable."""
PLACEBOS: tuple[Change, ...] = (
    Change(variable="learning_rate", dose=0.97),
    Change(variable="shuffle", dose=1),
)
"""Changes too small to be a remedy: a few per cent of the rate, another order of the same data."""


OF_THE_START = frozenset({"hold_rate"})
"""Changes that keep what was in force where the replay starts, so they go on from there only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where replays start and end, for one diverged run."""

    divergence: Divergence
    good_step: int
    """Step of the last good checkpoint."""
    steps: int
    """The run's planned steps."""
    own_order: bool = False
    """Whether the data is a stream, whose order nobody can change."""

    def until(self, from_step: int) -> int:
        """Return one past the last step of a replay from `from_step` that is to be believed."""
        distance = self.divergence.detected - from_step + 1
        return min(self.steps, from_step + max(HORIZON_FACTOR * distance, distance + HORIZON_LEAST))

    def searched(self, from_step: int) -> int:
        """Return one past the last step of a replay that looks for a change that cures."""
        distance = self.divergence.detected - from_step + 1
        # From scratch a loss needs longer to fall, often under a ramp of the rate.
        least = SEARCH_LEAST if from_step else HORIZON_LEAST
        return min(self.steps, from_step + max(SEARCH_FACTOR * distance, distance + least))

    def control(self, from_step: int, *, half: bool = False, watched: bool = True) -> TrialSpec:
        """Return the replay that changes nothing, watched closely from the last good checkpoint."""
        near = from_step == self.good_step and watched
        good = from_step == self.good_step
        where = "the last good checkpoint" if good else f"step {from_step}"
        return TrialSpec(
            role="control",
            from_step=from_step,
            until_step=min(self.steps, self.divergence.detected + 1 + CONTROL_GRACE),
            instruments=(*WATCHED, *(["half_modules"] if half else [])) if near else (),
            reason=f"does the unchanged run crash again from {where}?",
        )

    def checked(self, from_step: int) -> TrialSpec:
        """Return the unchanged replay of a run that did not diverge, to watch its rules."""
        return TrialSpec(
            role="control",
            from_step=from_step,
            until_step=min(self.divergence.detected + 1, from_step + CHECKED_STEPS),
            instruments=WATCHED,
            reason=f"does the training step keep its rules from step {from_step} on?",
        )

    def placebos(self, from_step: int) -> tuple[TrialSpec, ...]:
        """Return the replays from a checkpoint with a change too small to be a remedy."""
        return tuple(
            self.changed(
                "placebo",
                (change,),
                from_step=from_step,
                reason="does a change too small to matter cure it too?",
            )
            for change in PLACEBOS
            if not (change.variable == "shuffle" and self.own_order)
        )

    def changed(
        self,
        role: Role,
        changes: tuple[Change, ...],
        *,
        from_step: int,
        reason: str,
        instruments: tuple[str, ...] = (),
    ) -> TrialSpec:
        """Return a replay with changes, up to the horizon; it keeps its end for a proof."""
        until = self.until(from_step) if role == "placebo" else self.searched(from_step)
        return TrialSpec(
            role=role,
            changes=changes,
            from_step=from_step,
            until_step=until,
            save_at=() if role == "placebo" else (until,),
            instruments=instruments,
            reason=reason,
        )

    def dose(self, ladder: Ladder, index: int, *, from_step: int) -> TrialSpec:
        """Return the replay of one dose of a ladder; warmup always starts at step 0."""
        dose = ladder.doses[index]
        until = self.searched(from_step)
        if ladder.variable == "warmup":
            from_step = 0
            held = max(HORIZON_LEAST, self.divergence.detected + 1)
            until = min(self.steps, max(self.searched(0), int(dose) + held))
        revert = self.divergence.detected + 1
        # A ramp that is over cannot be taken back, so a warmup trial keeps its end only.
        keeps = ladder.variable != "warmup" and revert < until
        return TrialSpec(
            role="dose",
            changes=(Change(variable=ladder.variable, dose=dose),),
            from_step=from_step,
            until_step=until,
            save_at=(revert, until) if keeps else (until,),
            reason=f"does {ladder.label(index)} cure it?",
        )

    def reversal(self, cure: TrialSpec) -> TrialSpec | None:
        """Return the replay that goes on from a cured trial with the original value put back.

        None when the cure left no checkpoint, or the run ends too soon after it to tell.
        """
        start = self.divergence.detected + 1
        if start not in cure.save_at or start == cure.until_step:
            return None
        distance = self.divergence.detected - cure.from_step + 1
        wait = max(SEARCH_FACTOR * distance, distance + SEARCH_LEAST)
        if cure.variable == "clip_norm":  # the next burst takes its time
            wait = max(wait, min(2 * start, start + WAIT))
        until = min(self.steps, start + wait)
        if until - start < distance:
            return None
        return TrialSpec(
            role="reversal",
            from_step=start,
            until_step=until,
            from_trial=cure.key,
            reason=f"does the crash come back when {cure.variable} is put back?",
        )

    def onward(self, cure: TrialSpec, *, recurring: bool = False) -> TrialSpec | None:
        """Return the replay that goes on past the horizon with the cure in force.

        With `recurring` it waits for another of what struck once: as long again as the first one
        took, twice, but not longer than `WAIT` steps. None when the cure already reached the run's
        planned end.
        """
        distance = self.divergence.detected - cure.from_step + 1
        until = max(self.until(cure.from_step), cure.until_step + max(distance, PROOF_LEAST))
        if recurring:
            took = self.divergence.detected + 1
            until = max(until, took + min(max(2 * took, WAIT_LEAST), WAIT))
        until = min(self.steps, until)
        if until <= cure.until_step or cure.until_step not in cure.save_at:
            return None
        if any(change.variable in OF_THE_START for change in cure.changes):
            return replace(
                cure, role="proof", until_step=until, save_at=(), reason="does it go on training?"
            )
        return TrialSpec(
            role="proof",
            changes=cure.changes,
            from_step=cure.until_step,
            until_step=until,
            from_trial=cure.key,
            reason="does it go on training past the horizon?",
        )

    def from_scratch(self, patch: Mapping[str, Any], *, cure: TrialSpec) -> TrialSpec:
        """Return the run of the patched experiment from the start, as its user would run it.

        It goes at least as far as the trial that cured: past the end of a ramp, for one.
        """
        shown = ", ".join(f"{key}: {value}" for key, value in patch.items())
        return TrialSpec(
            role="proof",
            patch=dict(patch),
            from_step=0,
            until_step=max(self.until(0), cure.until_step),
            reason=f"does the run train through with {shown}?",
        )


def patch_for(  # noqa: PLR0911
    variable: str, dose: Dose, *, setup: Setup, own_loop: bool
) -> dict[str, Any]:
    """Return the experiment keys that apply a dose for good.

    Args:
        variable: What to change.
        dose: How strongly, in the ladder's terms.
        setup: How the diverged run was configured.
        own_loop: True when the run's training function is the user's: its rate, batch and number
            format are not in the experiment file, so the change is applied as an intervention.
    """
    if own_loop and variable == "warmup" and setup.warmup_steps:
        # The new ramp takes the place of the loop's own, so it has to know of that.
        return {f"interventions.{variable}": dose, "schedule.warmup_steps": setup.warmup_steps}
    if own_loop and variable in {"learning_rate", "warmup", "batch_size", "precision"}:
        return {f"interventions.{variable}": dose}
    match variable:
        case "learning_rate":
            assert setup.lr is not None
            return {"optimizer.lr": float(f"{setup.lr * float(dose):.6g}")}
        case "warmup":
            return {"schedule.warmup_steps": int(dose)}
        case "clip_norm":
            return {"clip": float(dose)}
        case "precision":
            return {"precision": str(dose)}
        case "batch_size":
            return {"batch.size": setup.micro_batch * int(dose)}
    return {f"interventions.{variable}": dose}
