"""From what the curves show to an opinion with its limits, and to what would prove it.

The opinion is the one that a verdict compares itself with: the step records' own, before any
replay. It never becomes a verdict here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stabexp.detectors import opinion
from stabexp.diagnosis.curves import Curves
from stabexp.diagnosis.result import Opinion
from stabexp.records import Divergence, StepRecord

BENCHMARK = "64 % of 349 benchmark runs (docs/benchmark.md)"
"""How often such an opinion was right where every step was recorded and all settings were known."""
UNPROVED = (
    "nothing was replayed, so nothing is proved: with every step recorded and all settings known, "
    f"such an opinion named the right cause in {BENCHMARK}, and far less often where the code "
    "itself was at fault"
)
SUDDEN = frozenset({"data", "implementation"})
"""Causes that are named because one step was fine and the next was not."""

KNOWABLE: Mapping[str, str] = {
    "precision": "fp32, bf16 or fp16",
    "clip_norm": "a norm, or none",
    "warmup_steps": "a number of steps",
    "batch_size": "samples per update",
    "weight_decay": "a factor",
}
"""Settings that the rules ask about → what they are."""

README_SECTION = "README.md, “Bring your own training”"


def opinion_of(
    records: Sequence[StepRecord],
    divergence: Divergence,
    settings: Mapping[str, Any],
    limits: Sequence[str],
    *,
    interval: int = 1,
) -> Opinion:
    """Return what the records suggest, in the words of an opinion.

    With several steps between two points (`interval`), nothing is known to have come at once.
    """
    cause, reason = opinion(records, divergence, settings)
    if cause in SUDDEN and interval > 1:
        reason += f"; but points are {interval} steps apart, and it can have grown between two"
        cause = "inconclusive"
    elif cause == "implementation" and "precision" not in settings:
        reason += "; half precision would explain it as well, and which was used is not known"
    return Opinion(cause=cause, reason=reason, limits=tuple(limits))


def limits_of(curves: Curves, settings: Mapping[str, Any]) -> list[str]:
    """Return what these curves cannot show, most important first."""
    limits = [f"{UNPROVED}; a log shows less"]
    if curves.interval > 1:
        what = "a mean over about" if curves.averaged else "one step out of"
        limits.append(
            f"each point is {what} {curves.interval} steps: what lies between is not seen"
        )
    missing = [
        name
        for quantity, name in (("grad_norm", "gradient norm"), ("lr", "learning rate"))
        if quantity not in curves.found
    ]
    if missing:
        limits.append(f"the log has no {' and no '.join(missing)}")
    unknown = [name for name in KNOWABLE if name not in settings]
    if unknown:
        limits.append(
            f"not known, so not considered: {', '.join(unknown)}; say them with --setting "
            "NAME=VALUE"
        )
    limits.append(
        "which samples a step saw, the optimizer's state, the weights and the code are in no log"
    )
    return limits


def what_next(curves: Curves, *, diverged: bool) -> tuple[str, str]:
    """Return what would prove the cause of a run that stabexp cannot replay, and the command."""
    if curves.recorded_by is not None:
        verb = "bisect" if diverged else "check"
        return (
            f"stabexp recorded this run: where its directory is, `stabexp {verb}` replays it",
            f"stabexp {verb} {curves.recorded_by} --root DIRECTORY_OF_ITS_RUNS",
        )
    if not diverged:
        return (
            "stabexp can examine the training itself for faults that do not show in the loss, once "
            f"it has recorded it: {README_SECTION}",
            "stabexp run train.py:train",
        )
    trainers = {
        "Hugging Face trainer state": " (the part on the Hugging Face Trainer)",
    }
    return (
        "this log cannot be replayed; the training can. Let stabexp record it until it diverges, "
        f"then bisect: {README_SECTION}{trainers.get(curves.format, '')}",
        "stabexp run train.py:train && stabexp bisect RUN_ID",
    )
