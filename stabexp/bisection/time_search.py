"""Finds the last checkpoint from which the fix still works: after it lies the point of no return.

From old to new the checkpoints usually read works … works, fails … fails: the damage is done at one
moment and stays. So halving finds the border. A checkpoint that cannot be judged is left out. When
an older one fails where a newer one works, the newest that works is still the answer, and the
decision says that the answers were not orderly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Answers = Mapping[int, bool | None]
"""Checkpoint's step → whether the fix works when it starts there; None when it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeDecision:
    """What a finished search found."""

    works_from: int | None
    """Step of the newest checkpoint from which the fix works, None when it does from none."""
    fails_from: int | None
    """Step of the next newer checkpoint that could be judged; None when the newest works."""
    orderly: bool
    """False when an older checkpoint failed although a newer one works."""

    @property
    def no_return(self) -> tuple[int, int] | None:
        """The first and last step the point of no return can be, None when it was not passed.

        The state just before step `works_from` can be saved, that before `fails_from` cannot.
        """
        if self.fails_from is None:
            return None
        return (0 if self.works_from is None else self.works_from), self.fails_from - 1


def next_question(answers: Answers, *, checkpoints: Sequence[int]) -> int | None:
    """Return the step of the checkpoint to try next, None when all is decided.

    Needs at most ceil(log2 n) + 1 questions for n checkpoints, and one more for each that cannot be
    judged.

    Args:
        answers: What was tried. Steps that are not among the checkpoints are ignored.
        checkpoints: Steps of the usable checkpoints, in any order.
    """
    steps, low, high = _border(answers, checkpoints)
    return steps[(low + high) // 2] if high - low > 1 else None


def decide(answers: Answers, *, checkpoints: Sequence[int]) -> TimeDecision | None:
    """Return what the answers so far settle, or None while a question is open."""
    steps, low, high = _border(answers, checkpoints)
    if high - low > 1:
        return None
    works = steps[low] if low >= 0 else None
    return TimeDecision(
        works_from=works,
        fails_from=steps[high] if high < len(steps) else None,
        orderly=not any(answers.get(step) is False for step in steps[: max(low, 0)]),
    )


def _border(answers: Answers, checkpoints: Sequence[int]) -> tuple[list[int], int, int]:
    """Return the judgeable steps, old to new, the newest index that works and the next that fails.

    What was not asked lies strictly between the two; -1 and the length stand for "none".
    """
    unjudged = {step for step, answer in answers.items() if answer is None}
    steps = sorted(set(checkpoints) - unjudged)
    low = max((i for i, step in enumerate(steps) if answers.get(step)), default=-1)
    high = min(
        (i for i, step in enumerate(steps) if i > low and answers.get(step) is False),
        default=len(steps),
    )
    return steps, low, high
