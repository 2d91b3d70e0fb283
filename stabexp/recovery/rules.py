"""From the picture of a crash to the remedies worth trying, most specific first.

The documents' rules go from an error's name to a strategy: NaN → lower rate, fresh optimizer,
float32; gradient → clip. These are the end of the list here. Before them stands whatever takes away
exactly what went wrong, each only where the run's own figures speak for it; and none is believed
before a replay with it has passed the danger window. Source rows A13, A14, B20.

Two figures of the documents are not taken as they stand: a clip norm of 0.5 is far below one
model's healthy gradients and far above another's, so it is a multiple of the run's own; and a loss
clamped at 100 gives a run whose loss is above 100 no gradient for ever, so the limit lies above all
its healthy losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabexp.records import Change
from stabexp.recovery.picture import BURST, MOVED, Picture
from stabexp.recovery.remedies import Remedy

CLIP, CLIP_FALLBACK = 2.0, 0.5
"""The clip norm as a multiple of the usual gradient norm; the documents' figure without one."""
TIGHTER = 0.25
"""Of two clip norms the second as a share of the first: half the usual norm."""
CLAMP, CLAMP_FALLBACK = 3.0, 100.0
"""The highest loss with a gradient as a multiple of the highest healthy one; the documents'."""
OVERFLOWS = frozenset({"overflow", "fp16_overflow", "scaler"})
"""Reasons that can be the end of something else: numbers that had grown, or a narrow format."""
MANY = 2048
"""More samples than these are no longer a few bad ones."""


def remedies_for(picture: Picture) -> tuple[Remedy, ...]:
    """Return what to try, in order; the last ones are the documents' conservative rules."""
    if not picture.reproduced:
        why = "the unchanged replay did not crash: what happened was a single event"
        return (Remedy(name="plain_resume", why=why), *_conservative(picture))
    return (*_specific(picture), *_conservative(picture))


def _specific(picture: Picture) -> Iterator[Remedy]:
    yield from _operation(picture)
    yield from _rules(picture)
    cause, why = picture.suspicion
    if cause == "optimizer_state" and not _has(picture, "state_changed_between_steps"):
        kept = Change(variable="optimizer_state", dose="kept")
        yield Remedy(name="keep_optimizer_state", why=why, changes=(kept,))
    if (jump := picture.rate_jump) is not None:
        yield Remedy(
            name="hold_rate",
            why=f"the rate jumped from {jump[0]:.3g} to {jump[1]:.3g} at step {jump[2]}",
            changes=(Change(variable="hold_rate", dose="on"),),
        )
    if picture.half:
        wide = Change(variable="precision", dose="fp32")
        yield Remedy(name="wider_format", why="it trains in half precision", changes=(wide,))
    yield from _decay(picture)
    clipping = tuple(_clipping(picture))
    often = picture.bursts > 1 or picture.samples_blamed
    if often:  # it met such gradients before: the data is so
        yield from clipping
    yield from _samples(picture)
    if not often:
        yield from clipping


def _clipping(picture: Picture) -> Iterator[Remedy]:
    norm, largest = picture.usual_norm, picture.largest_norm
    if not norm > 0 or not largest > BURST * norm:
        return
    times = f", {picture.bursts} times before" if picture.bursts else ""
    for share in (1.0, TIGHTER):
        clip = _clip(picture, share)
        why = f"a gradient norm of {largest:.3g} where {norm:.3g} is usual{times}: clipped at "
        yield Remedy(name="clip_gradients", why=f"{why}{clip.dose:g}", changes=(clip,))


def _operation(picture: Picture) -> Iterator[Remedy]:
    found = picture.located
    if found is None:
        return
    where = found.get("source") or found.get("module") or "the training step"
    told = f"{found['operation']} at {where} made the first {found['kind']} of step {found['step']}"
    few = tuple(found.get("sample_ids") or ())
    size = int(picture.settings.get("batch_size") or 0)
    if few and len(few) < max(size, 2) and (found["phase"] == "input" or len(few) <= 3):
        yield _replaced(few, f"{told}, from {_listed(few)} alone")
    if found["phase"] in {"input", "parameter", "optimizer"}:
        return
    if found["reason"] in OVERFLOWS:
        return
    place = f"@{found['source']}" if found.get("source") else ""
    safe = Change(variable="safe_operation", dose=f"{found['operation']}{place}")
    yield Remedy(name="safe_operation", why=told, changes=(safe,))


def _rules(picture: Picture) -> Iterator[Remedy]:
    for item in picture.broken:
        cure = item.get("cure")
        if not cure or cure["variable"] not in {"optimizer_state", "safe_operation"}:
            continue
        state = cure["variable"] == "optimizer_state"
        yield Remedy(
            name="keep_optimizer_state" if state else "safe_operation",
            why=f"{str(item['rule']).replace('_', ' ')} at {item['place']}: {item['detail']}",
            changes=(Change(variable=cure["variable"], dose=cure["dose"]),),
        )


def _decay(picture: Picture) -> Iterator[Remedy]:
    decay = float(picture.settings.get("weight_decay") or 0.0)
    low, high = MOVED
    if decay and not low < picture.norm_moved < high:
        yield Remedy(
            name="no_weight_decay",
            why=f"at a weight decay of {decay:g} the parameters' norm became "
            f"{picture.norm_moved:.3g} times what it was",
            changes=(Change(variable="weight_decay", dose=0.0),),
        )


def _samples(picture: Picture) -> Iterator[Remedy]:
    """Bad samples, from few to many: those that stand out, those of one step, those of several."""
    if picture.flagged:
        seen = _listed(picture.flagged)
        yield _replaced(
            picture.flagged, f"{seen} stand out when the restored model sees each alone"
        )
    step = picture.batch_at_fault
    if step is None:
        return
    last = picture.crash.detected
    for end in dict.fromkeys((step, min(step + 4, last), last)):
        ids = picture.samples(step, end)
        if ids and len(ids) <= MANY:
            steps = f"step {step}" if end == step else f"steps {step} to {end}"
            why = f"the loss of step {step} jumped after an ordinary update; the samples of {steps}"
            yield _replaced(ids, why)


def _conservative(picture: Picture) -> Iterator[Remedy]:
    """The documents' rules, ever stronger."""
    fresh = Change(variable="optimizer_state", dose="fresh")
    wide = (Change(variable="precision", dose="fp32"),) if picture.half else ()
    for share in (1.0, TIGHTER):
        clip = _clip(picture, share)
        yield Remedy(
            name="clip_gradients",
            why=f"no figure names another cause: clipped at {clip.dose:g}",
            changes=(clip,),
            conservative=True,
        )
    for factor in (0.5, 0.2, 0.1, 0.05):
        yield Remedy(
            name="lower_rate",
            why=f"no figure names another cause: {factor:g} times the rate",
            changes=(Change(variable="learning_rate", dose=factor),),
            conservative=True,
        )
    yield Remedy(
        name="fresh_optimizer",
        why="what the optimizer remembers may be bad: forgotten, at half the rate, clipped",
        changes=(Change(variable="learning_rate", dose=0.5), _clip(picture), fresh, *wide),
        conservative=True,
    )
    yield Remedy(
        name="conservative",
        why="a tenth of the rate, clipping, and no gradient from losses above all healthy ones",
        changes=(
            Change(variable="learning_rate", dose=0.1),
            _clip(picture),
            Change(variable="loss_clamp", dose=_clamp(picture)),
            *wide,
        ),
        conservative=True,
    )
    yield Remedy(
        name="restart",
        why="nothing cures from the last good checkpoint: from the start, at half the rate",
        changes=(Change(variable="learning_rate", dose=0.5), _clip(picture)),
        from_scratch=True,
        conservative=True,
    )


def _clip(picture: Picture, share: float = 1.0) -> Change:
    usual = picture.usual_norm
    norm = CLIP * usual if math.isfinite(usual) and usual > 0 else CLIP_FALLBACK
    return Change(variable="clip_norm", dose=float(f"{norm * share:.3g}"))


def _clamp(picture: Picture) -> float:
    highest = picture.highest_loss
    found = CLAMP * highest if math.isfinite(highest) and highest > 0 else CLAMP_FALLBACK
    return float(f"{found:.3g}")


def _replaced(ids: tuple[int, ...], why: str) -> Remedy:
    dose = ",".join(map(str, sorted(ids)))
    return Remedy(
        name="replace_samples", why=why, changes=(Change(variable="replace_samples", dose=dose),)
    )


def _has(picture: Picture, rule: str) -> bool:
    return any(item.get("rule") == rule and item.get("cure") for item in picture.broken)


def _listed(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:6])) + (", …" if len(ids) > 6 else "")
    return f"sample{'s' if len(ids) != 1 else ''} {shown}"
