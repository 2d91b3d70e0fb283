"""The decision tree as data: questions in order, each answered from facts, each leading somewhere.

Cures are not causes: a lower rate cures most faults. So a cure only opens a question; what was seen
(a number lost in half precision, bursts of the gradient, a full rate that is fine once ramped up)
and how the run was configured decide it. Questions whose answer would make all later ones
meaningless come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from stabexp.bisection.facts import Facts, burstiness, healthy_norm, healthy_norms
from stabexp.records import Cause, Cure, Evidence, TrialRecord

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Yes or no, the figures, and the trials that say so."""

    yes: bool
    detail: str
    trials: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One question; `yes` and `no` name the next node, or a cause as "= cause"."""

    question: str
    ask: Callable[[Facts], Answer]
    yes: str
    no: str


def walk(facts: Facts, tree: dict[str, Node] | None = None) -> tuple[Cause, tuple[Evidence, ...]]:
    """Walk the tree from its first node; return the cause and the path with its evidence."""
    nodes = TREE if tree is None else tree
    name = next(iter(nodes))
    path: list[Evidence] = []
    while True:
        node = nodes[name]
        answer = node.ask(facts)
        target = node.yes if answer.yes else node.no
        ended = target.startswith("= ")
        path.append(
            Evidence(
                node=name,
                question=node.question,
                answer="yes" if answer.yes else "no",
                detail=answer.detail,
                trials=answer.trials,
                decisive=ended,
            )
        )
        if ended:
            return cast(Cause, target.removeprefix("= ")), tuple(path)
        name = target


def _control(facts: Facts) -> Answer:
    keys = _keys(facts.controls)
    for record in facts.controls:
        crashed = record.divergence
        if record.mismatch is not None and record.mismatch <= facts.divergence.onset:
            return Answer(
                yes=False,
                detail=f"the unchanged replay from step {record.spec.from_step} first differs at "
                f"step {record.mismatch}, in {record.mismatch_field}, before the onset at step "
                f"{facts.divergence.onset}",
                trials=keys,
            )
        if crashed is None or crashed.detected != facts.divergence.detected:
            seen = f"diverged at step {crashed.detected}" if crashed else "stayed stable"
            return Answer(
                yes=False,
                detail=f"the unchanged replay from step {record.spec.from_step} {seen}; the run "
                f"diverged at step {facts.divergence.detected}",
                trials=keys,
            )
    starts = " and ".join(str(record.spec.from_step) for record in facts.controls)
    return Answer(
        yes=True,
        detail=f"replayed from step {starts}: every loss, norm and parameter digest up to the "
        f"divergence at step {facts.divergence.detected} is equal bit for bit",
        trials=keys,
    )


def _placebo(facts: Facts) -> Answer:
    cured = [record for record in facts.placebos if record.outcome == "cured"]
    if cured:
        names = ", ".join(_changed(record) for record in cured)
        return Answer(yes=True, detail=f"{names} made the crash go away too", trials=_keys(cured))
    done = [record for record in facts.placebos if record.outcome != "inconclusive"]
    names = ", ".join(f"{_changed(record)} {record.outcome}" for record in done)
    return Answer(
        yes=False,
        detail=f"none cures: {names}" if done else "no placebo was run",
        trials=_keys(facts.placebos),
    )


def _any_cure(facts: Facts) -> Answer:
    robust = [ladder for ladder in facts.ladders.values() if ladder.cured]
    if undecided := [ladder for ladder in facts.ladders.values() if ladder.undecided]:
        # What was not tried to its end cannot be ruled out, so nothing can be named.
        names = ", ".join(ladder.variable for ladder in undecided)
        known = f"; cured so far by {', '.join(lad.variable for lad in robust)}" if robust else ""
        detail = f"{undecided[0].skipped}, with no answer yet about {names}{known}"
        return Answer(yes=False, detail=detail)
    if not robust:
        tried = ", ".join(v for v, ladder in facts.ladders.items() if ladder.trials)
        return Answer(yes=False, detail=f"tried without a robust cure: {tried or 'nothing'}")
    shown = ", ".join(
        f"{ladder.variable} {_amount(ladder.variable, ladder.cure.dose)}"
        for ladder in robust
        if ladder.cure
    )
    keys = tuple(ladder.cure.trial for ladder in robust if ladder.cure)
    return Answer(yes=True, detail=f"mildest robust cures: {shown}", trials=keys)


def _precision(facts: Facts) -> Answer:
    ladder = facts.ladder("precision")
    mechanism = _lost_numbers(facts)
    if facts.setup.precision in {"fp32", "fp64"}:
        return Answer(yes=False, detail=f"the run is in {facts.setup.precision}")
    if ladder.cured and mechanism:
        cure = cast(Cure, ladder.cure)
        return Answer(
            yes=True,
            detail=f"{mechanism}; {cure.dose} cures at the same learning rate",
            trials=(*_keys(facts.controls), cure.trial),
        )
    if ladder.cured:
        return Answer(
            yes=False,
            detail="a wider format cures, but no overflow or lost update was seen",
            trials=_keys(ladder.trials),
        )
    return Answer(
        yes=False,
        detail="the run crashes in a wider format too" if ladder.trials else ladder.skipped,
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


def _batch_size(facts: Facts) -> Answer:
    ladder = facts.ladder("batch_size")
    size = facts.setup.batch_size
    if not ladder.cured:
        return Answer(
            yes=False,
            detail="the run crashes with larger batches too" if ladder.trials else ladder.skipped,
            trials=_keys(ladder.trials),
        )
    cure = cast(Cure, ladder.cure)
    if size > TINY_BATCH:
        return Answer(
            yes=False,
            detail=f"×{cure.dose} cures, but {size} samples per update are not few",
            trials=(cure.trial,),
        )
    others = [
        v for v in ("learning_rate", "clip_norm", "warmup", "precision") if facts.ladder(v).cured
    ]
    if not others:
        return Answer(
            yes=True,
            detail=f"{size} per update; ×{cure.dose} cures at the same rate and nothing else does",
            trials=(cure.trial,),
        )
    # A lower rate averages the same noise over more steps, so it cures as well. But at the full
    # rate the run is fine once the noise is gone: what is out of range is the batch.
    share = noise_share(facts)
    known = "could not be measured" if share is None else f"is {share:.0%} of its squared size"
    return Answer(
        yes=share is not None and share > NOISE_SHARE,
        detail=f"{size} per update and ×{cure.dose} cures at the same rate; sampling noise in the "
        f"gradient {known}; also cured by {', '.join(others)}",
        trials=(cure.trial,),
    )


def noise_share(facts: Facts) -> float | None:
    """Return which share of the squared gradient norm at the run's batch is sampling noise, 0 to 1.

    From the gradient norms at two batch sizes, the run's and the largest one tried, over the first
    steps after the same checkpoint: E|g_B|² = |G|² + tr(Σ)/B. Source: McCandlish et al. 2018, "An
    Empirical Model of Large-Batch Training", appendix A. None when they were not measured.
    """
    ladder = facts.ladder("batch_size")
    control = next((r for r in facts.controls if "early_grad_norm" in r.metrics), None)
    larger = [
        r
        for r in ladder.trials
        if control and r.spec.from_step == control.spec.from_step and "early_grad_norm" in r.metrics
    ]
    if control is None or not larger:
        return None
    largest = max(larger, key=lambda r: float(r.spec.dose or 1))
    factor = float(largest.spec.dose or 1)
    small, big = control.metrics["early_grad_norm"] ** 2, largest.metrics["early_grad_norm"] ** 2
    if not (small > 0 and math.isfinite(small) and math.isfinite(big)):
        return None
    noise = (small - big) / (1 - 1 / factor)
    return min(1.0, max(0.0, noise / small))


def _clip_norm(facts: Facts) -> Answer:
    ladder = facts.ladder("clip_norm")
    if not ladder.cured:
        return Answer(
            yes=False,
            detail="the run crashes with clipping too" if ladder.trials else ladder.skipped,
            trials=_keys(ladder.trials),
        )
    cure = cast(Cure, ladder.cure)
    seen = len(healthy_norms(facts.records, facts.divergence.onset))
    if seen < HEALTHY_STEPS:
        return Answer(
            yes=False,
            detail=f"clipping at {float(cure.dose):.3g} cures, but {seen} steps before the onset "
            "are too few to tell a burst from the usual gradient",
            trials=(cure.trial,),
        )
    usual = healthy_norm(facts.records, facts.divergence.onset)
    bursts = burstiness(facts.records, facts.divergence)
    clip = facts.setup.clip_norm
    loose = clip is None or clip > LOOSE_CLIP * usual
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
        yes=loose and bursts > BURST and clipped <= BURST_CLIP_SHARE and not ramped,
        detail=detail,
        trials=(cure.trial,),
    )


def _warmup(facts: Facts) -> Answer:
    ladder = facts.ladder("warmup")
    if not ladder.cured:
        return Answer(
            yes=False,
            detail="a longer ramp does not cure" if ladder.trials else ladder.skipped,
            trials=_keys(ladder.trials),
        )
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


def _learning_rate(facts: Facts) -> Answer:
    ladder = facts.ladder("learning_rate")
    if not ladder.cured:
        return Answer(
            yes=False,
            detail="no lower rate cures robustly" if ladder.trials else ladder.skipped,
            trials=_keys(ladder.trials),
        )
    cure = cast(Cure, ladder.cure)
    milder = f"×{cure.milder_dose} does not" if cure.milder_dose else "no milder dose was tried"
    return Answer(
        yes=True,
        detail=f"rate ×{cure.dose} cures, {milder}; nothing milder in kind explains the crash",
        trials=(cure.trial,),
    )


TREE: dict[str, Node] = {
    "control": Node(
        question="Does the unchanged replay crash at the same step, bit for bit?",
        ask=_control,
        yes="placebo",
        no="= not_reproduced",
    ),
    "placebo": Node(
        question="Does a change too small to be a remedy cure it too?",
        ask=_placebo,
        yes="= marginal",
        no="any_cure",
    ),
    "any_cure": Node(
        question="Does any single change cure it robustly?",
        ask=_any_cure,
        yes="precision",
        no="= inconclusive",
    ),
    "precision": Node(
        question="Was a number lost in half precision, and does a wider format cure?",
        ask=_precision,
        yes="= precision",
        no="batch_size",
    ),
    "batch_size": Node(
        question="Are there so few samples per update that their noise throws the run over?",
        ask=_batch_size,
        yes="= batch_size",
        no="clip_norm",
    ),
    "clip_norm": Node(
        question="Do rare bursts of the gradient, which nothing clips, throw the run over?",
        ask=_clip_norm,
        yes="= clip_norm",
        no="warmup",
    ),
    "warmup": Node(
        question="Is the full rate fine once it is ramped up?",
        ask=_warmup,
        yes="= warmup",
        no="learning_rate",
    ),
    "learning_rate": Node(
        question="Is the steady rate itself too high?",
        ask=_learning_rate,
        yes="= learning_rate",
        no="= inconclusive",
    ),
}


def _keys(records: tuple[TrialRecord, ...] | list[TrialRecord]) -> tuple[str, ...]:
    return tuple(record.spec.key for record in records)


def _changed(record: TrialRecord) -> str:
    return ", ".join(
        f"{change.variable} {_amount(change.variable, change.dose)}"
        for change in record.spec.changes
    )


def _amount(variable: str, dose: float | int | str) -> str:
    return f"×{dose}" if variable in {"learning_rate", "batch_size"} else str(dose)
