"""What a replay proves about the samples it showed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from stabexp.bisection.data_case import DataAnswer, DataQuestion

Group = frozenset[int]
"""Sample ids."""

SOON = 8
"""Steps within which a sample takes effect on another state."""


def witness(
    asked: DataQuestion, answer: DataAnswer, group: Group, others: Collection[Group]
) -> bool:
    """Return whether a replay crashed with the group shown before any other could have done it."""
    if answer.outcome != "diverged" or asked.show or asked.replace & group:
        return False
    seen = answer.seen(until=answer.detected)
    return group <= seen and not any(
        other <= seen and not other & asked.replace for other in others
    )


def harmless(asked: DataQuestion, answer: DataAnswer, samples: Group) -> bool:
    """Return whether a replay trained through although all of these were shown."""
    if answer.outcome != "cured" or asked.show or asked.replace & samples:
        return False
    return samples <= answer.seen()


def soon_after(answer: DataAnswer, batches: int) -> bool:
    """Return whether a replay diverged on the batches it showed first, not on what came later."""
    if answer.outcome != "diverged":
        return False
    assert answer.onset is not None
    return answer.onset < min(answer.shown, default=answer.onset) + batches + SOON


def smallest_cure(asked: Iterable[tuple[DataQuestion, DataAnswer]]) -> tuple[int, ...]:
    """Return the fewest samples that were seen to cure when replaced; empty for none."""
    cures = [
        question.replace
        for question, answer in asked
        if answer.outcome == "cured" and question.kind not in {"placebo", "other_state"}
    ]
    return tuple(sorted(min(cures, key=len, default=())))


def union(groups: Iterable[Collection[int]]) -> Group:
    return frozenset(chain.from_iterable(groups))


def listed(samples: Collection[int], *, at_most: int = 4) -> str:
    """Return "sample 7", "samples 7 and 9", "samples 7, 9, 12, 20 and 3 more"."""
    names = [str(sample) for sample in sorted(samples)]
    if len(names) > at_most:
        names = [*names[:at_most], f"{len(names) - at_most} more"]
    if len(names) < 2:
        return f"sample {''.join(names)}"
    return f"samples {', '.join(names[:-1])} and {names[-1]}"
