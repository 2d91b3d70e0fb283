"""Batch, clipping, warmup or the rate itself: which member of one family is out of range?

Near the edge each of them cures what any other one caused. So cures only gate; what was seen and
how the run was configured decide.
"""

from __future__ import annotations

import math
from statistics import median
from typing import cast

from stabexp.bisection.evidence.answer import Answer, outcomes, uncured
from stabexp.bisection.facts import (
    Facts,
    burstiness,
    healthy_norm,
    healthy_norms,
)
from stabexp.records import Cure, TrialRecord

TINY_BATCH = 8
"""Samples per update up to which the batch itself can be the fault."""
NOISE_SHARE = 1 / 3
"""Share of the squared gradient norm that sampling noise makes up where the batch is too small."""
BURST = 8.0
"""Largest gradient norm over the usual one above which the run has bursts."""
LOOSE_CLIP = 20.0
"""A threshold this many times the usual norm clips nothing that matters."""
BURST_CLIP_SHARE = 0.5
"""Clipping that acts in more steps than this is a lower rate in disguise."""
HEALTHY_STEPS = 8
"""Steps before the onset without which nothing can be called a burst: there is no usual norm."""
LEVEL, LEAST_PROGRESS = 10, 0.02
"""Steps that make a level of the loss, and the share by which it must fall to be learning."""
AT_ONCE = 50.0
"""Gradient norm at the onset over the usual one that no steady growth brings in one step."""
MOVED = 3
"""Steps by which a crash comes later that is another one."""
EARLY = 50
"""An onset before this step falls into the time that a warmup covers."""
RAMPED = 0.5
"""A run whose first rate is below this share of its highest has a ramp."""
HELD_STEPS = 10
"""Steps at the full rate after a ramp before the ramp counts as the cure."""


def batch_size(facts: Facts) -> Answer:
    """Are there so few samples per update that their noise throws the run over?"""
    ladder = facts.ladder("batch_size")
    size = facts.setup.batch_size
    if not few_samples(facts):
        return Answer(yes=False, detail=f"{size} samples per update are not few")
    if not ladder.cured:
        return uncured(ladder, possible=True)
    cure = cast(Cure, ladder.cure)
    # A lower rate averages the same noise over more steps, so it cures as well. But at the full
    # rate the run is fine once the noise is gone: what is out of range is the batch.
    share = noise_share(facts)
    known = "could not be measured" if share is None else f"is {share:.0%} of its squared size"
    return Answer(
        yes=share is not None and share > NOISE_SHARE,
        detail=f"{size} per update and ×{cure.dose} cures at the same rate; sampling noise in the "
        f"gradient {known}",
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


def few_samples(facts: Facts) -> bool:
    """Return whether there are so few samples per update that the batch can be the fault."""
    return facts.setup.batch_size <= TINY_BATCH


def clips_nothing(facts: Facts) -> bool:
    """Return whether there is no clipping, or a threshold that is never reached."""
    clip = facts.setup.clip_norm
    usual = healthy_norm(facts.records, facts.divergence.onset)
    return clip is None or clip > LOOSE_CLIP * usual


def bursting(facts: Facts) -> bool:
    """Return whether rare gradients are out of proportion, and nothing clips them."""
    seen = len(healthy_norms(facts.records, facts.divergence.onset))
    if seen < HEALTHY_STEPS or not clips_nothing(facts):
        return False
    return burstiness(facts.records, facts.divergence) > BURST


def struck(facts: Facts) -> bool:
    """Return whether the crash came in one step, as no steady growth does."""
    usual = healthy_norm(facts.records, facts.divergence.onset)
    norms = [r.grad_norm for r in facts.records if r.step == facts.divergence.onset]
    return any(not norm <= AT_ONCE * usual for norm in norms)


def at_once(facts: Facts) -> bool:
    """Return whether the gradient burst in one step as no steady growth does, and nothing clips."""
    return clips_nothing(facts) and not _young(facts) and struck(facts)


def may_burst(facts: Facts) -> bool:
    """Return whether clipping can be the question: bursts were seen, or there was no time for it.

    A run that crashes in its first steps has no usual norm to compare a burst with.
    """
    if long_tail(facts) or at_once(facts):
        return True
    return bursting(facts) or (early(facts) and facts.setup.clip_norm is None and _young(facts))


def long_tail(facts: Facts) -> bool:
    """Return whether samples threw the run over, and others did when these were gone.

    Then it is no few samples but the tail of the data, which clipping is there for.
    """
    if not clips_nothing(facts):
        return False
    if "data" in facts.disproved:
        return True
    crash = facts.divergence
    usual = healthy_norm(facts.records, crash.onset)
    norms = [r.grad_norm for r in facts.records if crash.onset <= r.step <= crash.onset + 1]
    moved = any(
        trial.divergence is not None
        and trial.divergence.pattern == crash.pattern
        and trial.divergence.detected > crash.detected + MOVED
        for trial in facts.data_trials
    )
    return moved and not _young(facts) and max(norms, default=0.0) > BURST * usual


def _young(facts: Facts) -> bool:
    return len(healthy_norms(facts.records, facts.divergence.onset)) < HEALTHY_STEPS


def ramp_bursts(facts: Facts) -> bool:
    """Return whether the gradient bursts at a rate that is still ramped up, and nothing clips it.

    Then a ramp survives the burst and does not prevent it: the first norms, at the initial weights,
    are the ones to compare with.
    """
    if facts.setup.clip_norm is not None or not _young(facts):
        return False
    return _burst_under_ramp(facts) > BURST


def _burst_under_ramp(facts: Facts) -> float:
    """Return the largest norm of the ramps that cure, relative to the first; 0 without one."""
    cured = [record for record in facts.ladder("warmup").trials if record.outcome == "cured"]
    return max((record.metrics.get("burst_over_first", 0.0) for record in cured), default=0.0)


def clip_norm(facts: Facts) -> Answer:
    """Do rare bursts of the gradient, which nothing clips, throw the run over?"""
    ladder = facts.ladder("clip_norm")
    usual = healthy_norm(facts.records, facts.divergence.onset)
    bursts = burstiness(facts.records, facts.divergence)
    clip = facts.setup.clip_norm
    seen = f"the largest gradient norm is {bursts:.3g} times the usual {usual:.3g}; " + (
        "the run does not clip" if clip is None else f"the run clips at {clip:g}"
    )
    seen_to_burst = (bursting, ramp_bursts, long_tail, at_once)
    if not any(saw(facts) for saw in seen_to_burst):
        few = _young(facts)
        why = "too few steps before the onset to tell a burst from the usual gradient"
        return Answer(yes=False, detail=why if few else seen)
    if not ladder.cured:
        return uncured(ladder, possible=True)
    cure = cast(Cure, ladder.cure)
    clipped = ladder.trial(cure.trial).metrics.get("clipped_share", 1.0)
    if long_tail(facts):
        seen += "; with other samples in place of those that it crashed on it crashed on others"
    if ramp_bursts(facts):
        burst = _burst_under_ramp(facts)
        seen += f"; under a ramp the gradient still bursts to {burst:.3g} times its first norm"
    detail = (
        f"clipping at {float(cure.dose):.3g} cures and acts in {clipped:.0%} of the steps; {seen}"
    )
    ramp = facts.ladder("warmup")
    if ramp.undecided and early(facts):
        detail += f"; whether a ramp alone cures is open: {ramp.skipped}"
        return Answer(yes=None, detail=detail, trials=(cure.trial,))
    ramped = (
        ramp.cured
        and early(facts)
        and not any(saw(facts) for saw in (ramp_bursts, long_tail, at_once))
    )
    if ramped:
        detail += "; but the run has no warmup, and a ramp alone cures at the full rate"
    return Answer(
        yes=clipped <= BURST_CLIP_SHARE and not ramped, detail=detail, trials=(cure.trial,)
    )


def early(facts: Facts) -> bool:
    """Return whether the crash came where a ramp of the rate would have been, and there was none.

    A user's own loop has its schedule in the code, so there the recorded rates tell.
    """
    rates = [r.lr for r in facts.records if r.step <= facts.divergence.onset and r.lr == r.lr]
    ramped = facts.setup.warmup_steps > 0 or (bool(rates) and rates[0] < RAMPED * max(rates))
    return not ramped and facts.divergence.onset < EARLY


def warmup(facts: Facts) -> Answer:
    """Is the full rate fine once it is ramped up, and held as long as the crash took?"""
    ladder = facts.ladder("warmup")
    if not early(facts):
        had = facts.setup.warmup_steps
        why = f"the run has a ramp of {had} steps" if had else "the rate is ramped up already"
        if facts.divergence.onset >= EARLY:
            why = f"the onset at step {facts.divergence.onset} is past any usual warmup"
        return Answer(yes=False, detail=why)
    if not ladder.cured:
        return uncured(ladder, possible=True)
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
        return uncured(ladder, possible=True)
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


def not_learning(facts: Facts) -> Answer:
    """Does no rate learn, so that model or labels hold nothing to be learned?"""
    ladder = facts.ladder("learning_rate")
    stalled = [r for r in ladder.trials if _hardly(r) or r.spec.key in ladder.slow]
    cured = [r for r in ladder.trials if r.outcome == "cured" and r.spec.key not in ladder.slow]
    shown = outcomes(ladder) or "none was tried"
    if len(stalled) < 2 or cured or not _never_learned(facts):
        return Answer(yes=False, detail=f"rates: {shown}")
    return Answer(
        yes=True,
        detail=f"{shown}: what survives does not learn, and nor did the run, so no rate is right "
        "for it; look at the labels and at the architecture",
        trials=tuple(record.spec.key for record in stalled),
    )


def _hardly(record: TrialRecord) -> bool:
    found = record.divergence
    return record.outcome == "stalled" or (found is not None and found.pattern == "plateau")


def _never_learned(facts: Facts) -> bool:
    """Return whether the run's loss never came down by more than a fiftieth of where it began."""
    if facts.divergence.pattern == "plateau":
        return True
    losses = [r.loss for r in facts.records if r.step < facts.divergence.onset]
    losses = [loss for loss in losses if math.isfinite(loss)]
    if len(losses) < 2 * LEVEL:
        return False
    best = min(median(losses[i : i + LEVEL]) for i in range(len(losses) - LEVEL + 1))
    return losses[0] - best <= LEAST_PROGRESS * abs(losses[0])
