"""The four questions of a conservative rescue, answered from what was recorded.

Early or late, in half precision or not, with large gradients or not, restorable or not: that is how
practitioners split a crash before they know anything of its cause, and what they do then is
careful, not exact. A bisect asks the same things in its own tree, with replays; `node` says where.
Source row A5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stabexp.findings.limits import calm_until, healthy_before, limits_of
from stabexp.findings.non_finite import is_half
from stabexp.records import Divergence, StepRecord

FIRST_STEPS = 1000
"""Steps within which a crash counts as early."""
FIRST_SHARE = 0.1
"""The same as a share of the steps planned, which is shorter in a short training."""

UNKNOWN = -1
"""In place of a checkpoint's step: a log does not say whether there is one."""

Answer = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, its answer for this run, and what to look at then."""

    question: str
    answer: Answer
    why: str
    """With the figures."""
    advice: str
    nodes: tuple[str, ...]
    """Nodes of the bisect's decision tree that ask the same with replays."""


def questions_of(
    records: Sequence[StepRecord],
    divergence: Divergence,
    settings: Mapping[str, Any],
    *,
    checkpoint: int | None,
    run: str = "RUN_ID",
) -> tuple[Question, ...]:
    """Return the four questions in order, answered.

    Args:
        records: The run's steps, oldest first.
        divergence: What was detected.
        settings: What is known of the configuration.
        checkpoint: Step of the checkpoint to go back to; None where there is none, `UNKNOWN`
            where nothing says so.
        run: The run's name in commands.
    """
    return (
        _early(divergence, settings),
        _half(settings),
        _large(records, divergence),
        _restorable(checkpoint, run),
    )


def _early(divergence: Divergence, settings: Mapping[str, Any]) -> Question:
    planned = settings.get("steps")
    limit = float(FIRST_STEPS)
    if isinstance(planned, int) and planned < 2**30:
        limit = min(limit, max(FIRST_SHARE * planned, float(settings.get("warmup_steps") or 0)))
    early = divergence.onset < limit
    return Question(
        question="did it begin within the first steps?",
        answer="yes" if early else "no",
        why=f"onset at step {divergence.onset}, and the first {limit:.0f} are early",
        advice="look at initialisation and warmup first"
        if early
        else "initialisation and warmup have passed their test",
        nodes=("initialisation", "warmup"),
    )


def _half(settings: Mapping[str, Any]) -> Question:
    if "precision" not in settings:
        return Question(
            question="was it in mixed or half precision?",
            answer="unknown",
            why="not recorded; say it with --setting precision=fp16",
            advice="look for casts, for half() and for autocast",
            nodes=("precision",),
        )
    half = is_half(settings)
    return Question(
        question="was it in mixed or half precision?",
        answer="yes" if half else "no",
        why=f"computed in {settings['precision']}",
        advice="look at loss scaling and at what is cast to half precision"
        if half
        else "a NaN is an overflow or an operation outside its domain, not a lost bit",
        nodes=("precision",) if half else ("operation",),
    )


def _large(records: Sequence[StepRecord], divergence: Divergence) -> Question:
    until = [record for record in records if record.step <= divergence.detected]
    limits = limits_of(healthy_before(until, len(until), calm_until(until, divergence.onset)))
    norms = [(r.grad_norm, r.step) for r in until if r.step >= divergence.onset - 1]
    recorded = any(r.grad_norm == r.grad_norm for r in until)
    lost = next((r for r in until if recorded and not math.isfinite(r.grad_norm)), None)
    finite = [item for item in norms if math.isfinite(item[0])]
    if lost is not None and (not finite or max(finite)[0] <= limits.exploding):
        return Question(
            question="were gradients abnormally large?",
            answer="yes",
            why=f"norm {lost.grad_norm} at step {lost.step}, without having grown before",
            advice="what made it is one operation or one batch: locate it before changing the rate",
            nodes=("operation", "data", "precision"),
        )
    if not finite:
        return Question(
            question="were gradients abnormally large?",
            answer="unknown",
            why="no gradient norm was recorded at the onset",
            advice="record it before clipping",
            nodes=("clip_norm", "learning_rate"),
        )
    norm, step = max(finite)
    large = norm > limits.exploding
    return Question(
        question="were gradients abnormally large?",
        answer="yes" if large else "no",
        why=f"norm {norm:.4g} at step {step}, limit {limits.exploding:.4g} from {limits.source}",
        advice="a lower rate or stronger clipping; which of them is the cause, replays tell"
        if large
        else "look at data and loss function first",
        nodes=("clip_norm", "learning_rate", "warmup") if large else ("data", "operation", "rules"),
    )


def _restorable(checkpoint: int | None, run: str) -> Question:
    question = "is there a checkpoint to go back to?"
    if checkpoint == UNKNOWN:
        return Question(
            question=question,
            answer="unknown",
            why="a log does not say",
            advice="with one: change the settings and resume; without: restart carefully",
            nodes=("control",),
        )
    if checkpoint is None:
        return Question(
            question=question,
            answer="no",
            why="none before the onset is whole",
            advice="start again conservatively: a lower rate, a longer warmup, clipping",
            nodes=("control",),
        )
    return Question(
        question=question,
        answer="yes",
        why=f"that of step {checkpoint}",
        advice=f"change one setting and go on from there: stabexp recover {run}",
        nodes=("control",),
    )
