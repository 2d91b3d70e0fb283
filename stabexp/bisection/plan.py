"""Which replays a bisect makes: where they start, how long they run, and why.

A cure is only believed after six times the steps the unchanged replay needs to diverge (at least
forty more): of replays that looked cured after twice that time, 27 % diverged later; after six
times, 7 %. The run's own planned end is a natural horizon too, so no replay goes past it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stabexp.bisection.facts import Setup
from stabexp.bisection.ladder import Dose, Ladder
from stabexp.records import Change, Divergence, Role, TrialSpec

HORIZON_FACTOR = 6
HORIZON_LEAST = 40
CONTROL_GRACE = 20
"""Steps a control may go on past the recorded divergence before it counts as stable."""
PLACEBOS: tuple[Change, ...] = (
    Change(variable="learning_rate", dose=0.97),
    Change(variable="learning_rate", dose=1.03),
    Change(variable="shuffle", dose=1),
)
"""Changes too small to be a remedy: a few per cent of the rate, another order of the same data."""


SUSPECT_STEPS = 3
"""Steps up to the onset whose samples are suspected: a loss shows its cause a step or two later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where replays start and end, for one diverged run."""

    divergence: Divergence
    good_step: int
    """Step of the last good checkpoint."""
    steps: int
    """The run's planned steps."""

    def until(self, from_step: int) -> int:
        """Return one past the last step of a replay from `from_step`."""
        distance = self.divergence.detected - from_step + 1
        return min(self.steps, from_step + max(HORIZON_FACTOR * distance, distance + HORIZON_LEAST))

    def control(self, from_step: int) -> TrialSpec:
        """Return the replay that changes nothing."""
        where = "the last good checkpoint" if from_step == self.good_step else "step 0"
        return TrialSpec(
            role="control",
            from_step=from_step,
            until_step=min(self.steps, self.divergence.detected + 1 + CONTROL_GRACE),
            reason=f"does the unchanged run crash again from {where}?",
        )

    def placebos(self, from_step: int) -> tuple[TrialSpec, ...]:
        """Return the replays from a checkpoint with a change too small to be a remedy."""
        return tuple(
            TrialSpec(
                role="placebo",
                changes=(change,),
                from_step=from_step,
                until_step=self.until(from_step),
                reason="does a change too small to matter cure it too?",
            )
            for change in PLACEBOS
        )

    def data(self, first: int, last: int, *, role: Role) -> TrialSpec:
        """Return the replay that shows other samples in place of those of some steps.

        Those that the crash began with when it is about the data, as many others as a placebo.
        """
        return TrialSpec(
            role=role,
            changes=(Change(variable="replace_samples", dose=f"steps {first}-{last}"),),
            from_step=self.good_step,
            until_step=self.until(self.good_step),
            reason=f"does it crash with other samples in place of those of steps {first}-{last}?",
        )

    def suspect_steps(self) -> tuple[int, int]:
        """Return the first and last step whose samples the crash began with."""
        onset = self.divergence.onset
        return max(self.good_step, onset - SUSPECT_STEPS + 1), onset

    def dose(self, ladder: Ladder, index: int, *, from_step: int) -> TrialSpec:
        """Return the replay of one dose of a ladder; warmup always starts at step 0."""
        dose = ladder.doses[index]
        until = self.until(from_step)
        if ladder.variable == "warmup":
            from_step = 0
            held = max(HORIZON_LEAST, self.divergence.detected + 1)
            until = min(self.steps, max(self.until(0), int(dose) + held))
        revert = self.divergence.detected + 1
        # A ramp that is over cannot be taken back, so a warmup trial keeps nothing.
        keeps = ladder.variable != "warmup" and revert < until
        return TrialSpec(
            role="dose",
            changes=(Change(variable=ladder.variable, dose=dose),),
            from_step=from_step,
            until_step=until,
            save_at=revert if keeps else None,
            reason=f"does {ladder.label(index)} cure it?",
        )

    def reversal(self, cure: TrialSpec) -> TrialSpec | None:
        """Return the replay that goes on from a cured trial with the original value put back.

        None when the cure left no checkpoint, or the run ends too soon after it to tell.
        """
        if cure.save_at is None:
            return None
        distance = self.divergence.detected - cure.from_step + 1
        until = min(
            self.steps, cure.save_at + max(HORIZON_FACTOR * distance, distance + HORIZON_LEAST)
        )
        if until - cure.save_at < distance:
            return None
        return TrialSpec(
            role="reversal",
            from_step=cure.save_at,
            until_step=until,
            from_trial=cure.key,
            reason=f"does the crash come back when {cure.variable} is put back?",
        )

    def proof(self, patch: Mapping[str, Any], *, cure: TrialSpec) -> TrialSpec:
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


def patch_for(variable: str, dose: Dose, *, setup: Setup, own_loop: bool) -> dict[str, Any]:
    """Return the experiment keys that apply a dose for good.

    Args:
        variable: What to change.
        dose: How strongly, in the ladder's terms.
        setup: How the diverged run was configured.
        own_loop: True when the run's training function is the user's: its rate and batch are not in
            the experiment file, so the change is applied as an intervention.
    """
    if own_loop and variable in {"learning_rate", "warmup", "batch_size"}:
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
    raise AssertionError(variable)
