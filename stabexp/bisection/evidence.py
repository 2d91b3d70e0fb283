"""What each question of the decision tree looks at, and what counts as yes.

Not knowing is an answer of its own. A replay that could not be run shows nothing, and a variable
whose doses were never tried is not ruled out: the first stops the tree, the second lowers what the
verdict may claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from stabexp.bisection.facts import (
    Facts,
    LadderFacts,
    burstiness,
    healthy_norm,
    healthy_norms,
    samples_of,
)
from stabexp.records import Cure, TrialRecord

TINY_BATCH = 8
"""Samples per update up to which the batch itself can be the fault."""
NOISE_SHARE = 0.5
"""Share of the squared gradient norm above which sampling noise outweighs the gradient itself."""
BURST = 8.0
"""Largest gradient norm over the usual one above which the run has bursts."""
LOOSE_CLIP = 20.0
"""A threshold this many times the usual norm clips nothing that matters."""
BURST_CLIP_SHARE = 0.5
"""Clipping that acts in more steps than this is a lower rate in disguise."""
HALF_LIMIT = 2e4
"""Half-precision activations above this are close to the end of float16, 65,504."""
SKIPPED = 0.2
"""Share of updates left out by the loss scaler above which scaling is the fault."""
VANISHED = 0.6
"""Share of gradient elements that are exactly zero above which they have underflowed."""
HEALTHY_STEPS = 8
"""Steps before the onset without which nothing can be called a burst: there is no usual norm."""
HELD_STEPS = 10
"""Steps at the full rate after a ramp before the ramp counts as the cure."""
NOT_TRIED = "not tried"
"""Answer to a question that no replay was made for: it goes on as a no, but proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Yes or no, the figures, and the trials that say so."""

    yes: bool | None
    """None when the question stays open, so that nothing after it may be concluded."""
    detail: str
    trials: tuple[str, ...] = ()
    tried: bool = True
    """False when nothing was tried, so that "no" only means that nothing speaks for it."""

    @property
    def text(self) -> str:
        """The answer as the verdict shows it."""
        if self.yes is None:
            return "not known"
        if not self.tried:
            return NOT_TRIED
        return "yes" if self.yes else "no"


def control(facts: Facts) -> Answer:
    """Is every unchanged replay equal to the run, up to the same crash?"""
    keys = _keys(facts.controls)
    onset, detected = facts.divergence.onset, facts.divergence.detected
    if not facts.controls:
        return Answer(yes=None, detail="no unchanged replay was run")
    for record in facts.controls:
        start = f"the unchanged replay from step {record.spec.from_step}"
        if record.mismatch is not None and record.mismatch <= onset:
            return Answer(
                yes=False,
                detail=f"{start} first differs at step {record.mismatch}, in "
                f"{record.mismatch_field}, before the onset at step {onset}",
                trials=keys,
            )
        crashed = record.divergence
        if crashed is None and record.last_step < detected:
            # It showed nothing: neither that the crash comes back nor that it stays away.
            why = record.note or "no reason was recorded"
            detail = f"{start} could not be run to step {detected}: {why}"
            return Answer(yes=None, detail=detail, trials=keys)
        if crashed is None or crashed.detected != detected:
            seen = f"diverged at step {crashed.detected}" if crashed else "stayed stable"
            return Answer(
                yes=False,
                detail=f"{start} {seen}; the run diverged at step {detected}",
                trials=keys,
            )
    starts = " and ".join(str(record.spec.from_step) for record in facts.controls)
    late = [record.mismatch for record in facts.controls if record.mismatch is not None]
    equal = f"step {min(late) - 1}, past the onset at step {onset}" if late else "the divergence"
    return Answer(
        yes=True,
        detail=f"replayed from step {starts}: every loss, norm and parameter digest is equal bit "
        f"for bit up to {equal}; it diverged at step {detected} again",
        trials=keys,
    )


def placebo(facts: Facts) -> Answer:
    """Does a change too small to be a remedy cure?"""
    cured = [record for record in facts.placebos if record.outcome == "cured"]
    if cured:
        names = ", ".join(_changed(record) for record in cured)
        return Answer(yes=True, detail=f"{names} made the crash go away too", trials=_keys(cured))
    done = [record for record in facts.placebos if record.outcome != "inconclusive"]
    names = ", ".join(f"{_changed(record)} {record.outcome}" for record in done)
    return Answer(
        yes=False,
        detail=f"none cures: {names}" if done else "no placebo could be run",
        trials=_keys(facts.placebos),
        tried=bool(done),
    )


def any_cure(facts: Facts) -> Answer:
    """Does any single change cure robustly?"""
    robust = [ladder for ladder in facts.ladders.values() if ladder.cured]
    if not robust:
        undecided = [ladder for ladder in facts.ladders.values() if ladder.undecided]
        told = [ladder.variable for ladder in facts.ladders.values() if not ladder.untold]
        detail = f"tried without a robust cure: {', '.join(told) or 'nothing'}"
        if undecided:
            names = ", ".join(ladder.variable for ladder in undecided)
            detail = f"{undecided[0].skipped}, with no answer yet about {names}; {detail}"
        return Answer(yes=None if undecided else False, detail=detail)
    shown = ", ".join(
        f"{ladder.variable} {amount(ladder.variable, ladder.cure.dose)}"
        for ladder in robust
        if ladder.cure
    )
    keys = tuple(ladder.cure.trial for ladder in robust if ladder.cure)
    return Answer(yes=True, detail=f"mildest robust cures: {shown}", trials=keys)


def precision(facts: Facts) -> Answer:
    """Was a number lost in half precision, and does a wider format cure?"""
    ladder = facts.ladder("precision")
    if facts.setup.precision in {"fp32", "fp64"}:
        return Answer(yes=False, detail=f"the run is in {facts.setup.precision}")
    mechanism = _lost_numbers(facts)
    if not ladder.cured:
        return _uncured(ladder, possible=bool(mechanism))
    cure = cast(Cure, ladder.cure)
    if mechanism:
        return Answer(
            yes=True,
            detail=f"{mechanism}; {cure.dose} cures at the same learning rate",
            trials=(*_keys(facts.controls), cure.trial),
        )
    return Answer(
        yes=False,
        detail="a wider format cures, but no overflow or lost update was seen",
        trials=_keys(ladder.trials),
    )


def _lost_numbers(facts: Facts) -> str:
    """Return which half-precision number was lost in the control, empty when none was."""
    for record in facts.controls:
        seen = record.metrics
        if seen.get("half_activation_nonfinite", 0) > 0:
            return "a half-precision activation overflowed"
        if (largest := seen.get("half_activation_absmax", 0.0)) > HALF_LIMIT:
            return f"half-precision activations reached {largest:,.0f} of at most 65,504"
        if seen.get("update_nonfinite_first", 0) > 0:
            return "an update computed in half precision was not finite though its gradient was"
        if (skipped := seen.get("skipped_share", 0.0)) > SKIPPED:
            return f"the loss scaler left out {skipped:.0%} of the updates"
        if (vanished := seen.get("half_zero_gradient_share", 0.0)) > VANISHED:
            return f"{vanished:.0%} of the gradient elements were exactly zero"
    return ""


def data(facts: Facts) -> Answer:
    """Does the crash hang on the very samples it began with?"""
    record = facts.data
    if record is None:
        return Answer(yes=False, detail="no replay without those samples was made", tried=False)
    change = record.spec.changes[0]
    ids = sorted(samples_of(change, facts.records))
    where = f"others in place of the {len(ids)} samples of {change.dose}"
    keys = (record.spec.key,)
    if record.outcome != "cured":
        seen: str = record.outcome
        if record.divergence is not None:
            seen += f" at step {record.divergence.detected}"
        return Answer(yes=False, detail=f"with {where}: {seen}", trials=keys)
    shown = ", ".join(str(i) for i in ids[:12]) + (", …" if len(ids) > 12 else "")
    return Answer(
        yes=True,
        detail=f"with {where} it trains through at the full rate, so no setting is to blame as "
        f"far as can be told; look at the samples {shown}",
        trials=keys,
    )


def batch_size(facts: Facts) -> Answer:
    """Are there so few samples per update that their noise throws the run over?"""
    ladder = facts.ladder("batch_size")
    size = facts.setup.batch_size
    few = size <= TINY_BATCH
    if not ladder.cured:
        return _uncured(ladder, possible=few)
    cure = cast(Cure, ladder.cure)
    if not few:
        return Answer(
            yes=False,
            detail=f"×{cure.dose} cures, but {size} samples per update are not few",
            trials=(cure.trial,),
        )
    rivals = [facts.ladder(v) for v in ("learning_rate", "clip_norm", "warmup", "precision")]
    others = [rival.variable for rival in rivals if rival.cured]
    untold = [rival.variable for rival in rivals if rival.untold]
    if not others and not untold:
        return Answer(
            yes=True,
            detail=f"{size} per update; ×{cure.dose} cures at the same rate and nothing else does",
            trials=(cure.trial,),
        )
    # A lower rate averages the same noise over more steps, so it cures as well. But at the full
    # rate the run is fine once the noise is gone: what is out of range is the batch.
    share = noise_share(facts)
    known = "could not be measured" if share is None else f"is {share:.0%} of its squared size"
    rest = [f"also cured by {', '.join(others)}"] if others else []
    rest += [f"not tried to an end: {', '.join(untold)}"] if untold else []
    return Answer(
        yes=share is not None and share > NOISE_SHARE,
        detail=f"{size} per update and ×{cure.dose} cures at the same rate; sampling noise in the "
        f"gradient {known}; {'; '.join(rest)}",
        trials=(cure.trial,),
    )


def noise_share(facts: Facts) -> float | None:
    """Return which share of the squared gradient norm at the run's batch is sampling noise, 0 to 1.

    From the gradient norms at two batch sizes, the run's and the largest one tried, over the first
    steps after the same checkpoint: E|g_B|² = |G|² + tr(Σ)/B. Source: McCandlish et al. 2018, "An
    Empirical Model of Large-Batch Training", appendix A. None when they were not measured.
    """
    measured = [r for r in facts.controls if "early_grad_norm" in r.metrics]
    pairs = [
        (float(larger.spec.dose or 1), same_start, larger)
        for larger in facts.ladder("batch_size").trials
        for same_start in measured
        if larger.spec.from_step == same_start.spec.from_step
        and "early_grad_norm" in larger.metrics
    ]
    if not pairs:
        return None
    factor, usual, largest = max(pairs, key=lambda pair: pair[0])
    small, big = usual.metrics["early_grad_norm"] ** 2, largest.metrics["early_grad_norm"] ** 2
    if not (factor > 1 and small > 0 and math.isfinite(small) and math.isfinite(big)):
        return None
    noise = (small - big) / (1 - 1 / factor)
    return min(1.0, max(0.0, noise / small))


def clip_norm(facts: Facts) -> Answer:
    """Do rare bursts of the gradient, which nothing clips, throw the run over?"""
    ladder = facts.ladder("clip_norm")
    seen = len(healthy_norms(facts.records, facts.divergence.onset))
    usual = healthy_norm(facts.records, facts.divergence.onset)
    bursts = burstiness(facts.records, facts.divergence)
    clip = facts.setup.clip_norm
    loose = clip is None or clip > LOOSE_CLIP * usual
    bursting = seen >= HEALTHY_STEPS and loose and bursts > BURST
    if not ladder.cured:
        return _uncured(ladder, possible=bursting)
    cure = cast(Cure, ladder.cure)
    if seen < HEALTHY_STEPS:
        return Answer(
            yes=False,
            detail=f"clipping at {float(cure.dose):.3g} cures, but {seen} steps before the onset "
            "are too few to tell a burst from the usual gradient",
            trials=(cure.trial,),
        )
    clipped = ladder.trial(cure.trial).metrics.get("clipped_share", 1.0)
    ramped = facts.ladder("warmup").cured and facts.setup.warmup_steps == 0
    detail = (
        f"clipping at {float(cure.dose):.3g} cures and acts in {clipped:.0%} of the steps; "
        f"the largest gradient norm is {bursts:.3g} times the usual {usual:.3g}; "
        + ("the run does not clip" if clip is None else f"the run clips at {clip:g}")
    )
    if ramped:
        detail += "; but the run has no warmup, and a ramp alone cures at the full rate"
    return Answer(
        yes=bursting and clipped <= BURST_CLIP_SHARE and not ramped,
        detail=detail,
        trials=(cure.trial,),
    )


def warmup(facts: Facts) -> Answer:
    """Is the full rate fine once it is ramped up, and held as long as the crash took?"""
    ladder = facts.ladder("warmup")
    if not ladder.cured:
        return _uncured(ladder, possible=True)
    cure = cast(Cure, ladder.cure)
    record = ladder.trial(cure.trial)
    held = record.last_step + 1 - int(cure.dose)
    needed = max(HELD_STEPS, facts.divergence.detected + 1)
    return Answer(
        yes=held >= needed,
        detail=f"a linear ramp over {cure.dose} steps from scratch cures, and the run then holds "
        f"for {held} steps at the full rate (the crash took {facts.divergence.detected + 1}); "
        f"the run's own ramp has {facts.setup.warmup_steps} steps",
        trials=(cure.trial,),
    )


def learning_rate(facts: Facts) -> Answer:
    """Is the steady rate itself too high?"""
    ladder = facts.ladder("learning_rate")
    if not ladder.cured:
        return _uncured(ladder, possible=True)
    cure = cast(Cure, ladder.cure)
    milder = f"×{cure.milder_dose} does not" if cure.milder_dose else "no milder dose was tried"
    still = unmoved(facts)
    doubt = f"; but the crash does not move with the rate: {still}" if still else ""
    return Answer(
        yes=True,
        detail=f"rate ×{cure.dose} cures, {milder}; nothing milder in kind explains the crash"
        + doubt,
        trials=(cure.trial,),
    )


def unmoved(facts: Facts) -> str:
    """Return which lower rates crash at the same step all the same; empty when the crash moves.

    A rate that is too high lets an error grow, so at a lower one it takes longer to show. A crash
    that comes at its step whatever the rate was set off there: by a batch, an operation, a clock.
    """
    distances = {
        record.spec.dose: record.divergence.detected - facts.divergence.detected
        for record in facts.ladder("learning_rate").trials
        if record.divergence is not None
        and facts.divergence.detected - record.spec.from_step >= HEALTHY_STEPS
    }
    if len(distances) < 2 or any(abs(distance) > 1 for distance in distances.values()):
        return ""
    rates = ", ".join(f"×{dose}" for dose in sorted(distances, key=str, reverse=True))
    return f"{rates} crash within a step of it"


def _uncured(ladder: LadderFacts, *, possible: bool) -> Answer:
    """Answer for a variable without a robust cure.

    `possible` says whether the run was such that this variable can be the cause at all; where it
    can not, it does not matter that its doses were not tried to an end.
    """
    keys = _keys(ladder.trials)
    if ladder.undecided:
        shown = f" after {outcomes(ladder)}" if ladder.trials else ""
        detail = f"{ladder.skipped}{shown}"
        return Answer(yes=None if possible else False, detail=detail, trials=keys)
    if ladder.untold:
        why = outcomes(ladder) if ladder.trials else ladder.skipped
        return Answer(yes=False, detail=why, trials=keys, tried=not possible)
    return Answer(yes=False, detail=f"no dose cures robustly: {outcomes(ladder)}", trials=keys)


def outcomes(ladder: LadderFacts) -> str:
    """Return what each dose did: "×0.5 diverged, ×0.1 hardly learns"."""
    return ", ".join(
        f"{amount(ladder.variable, record.spec.dose)} "
        + ("hardly learns" if record.spec.key in ladder.slow else record.outcome)
        for record in ladder.trials
    )


def amount(variable: str, dose: float | int | str | None) -> str:
    """Return a dose as people read it: "×0.5", "0.25", "fp32"."""
    return f"×{dose}" if variable in {"learning_rate", "batch_size"} else str(dose)


def _changed(record: TrialRecord) -> str:
    changes = record.spec.changes
    return ", ".join(f"{c.variable} {amount(c.variable, c.dose)}" for c in changes)


def _keys(records: Sequence[TrialRecord]) -> tuple[str, ...]:
    return tuple(record.spec.key for record in records)
