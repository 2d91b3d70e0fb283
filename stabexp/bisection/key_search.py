"""Finds the few settings that make a good run diverge, of all in which a bad one differs from it.

Settings are put on the good run in a fixed order, more and more of them, until it diverges: the
last one added is needed. Where that is, halving finds in log2 n questions. With the needed ones
kept in, the search goes on among those before, until the needed ones are enough by themselves. Then
each is taken out once more, so that none is in the answer for nothing. A combination that cannot be
run answers None and counts as one that does not diverge. No combination is asked twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from typing import Literal

Combination = frozenset[int]
"""Which settings the good run takes over from the bad one, by index."""

Answers = Mapping[Combination, bool | None]
"""Combination → whether the run diverges; None when it cannot be run or judged."""

Finding = Literal["found", "good_diverges", "not_explained", "unresolved"]
"""found: `settings` are enough, and each of them is needed · good_diverges: the good run diverges
without any of them · not_explained: it does not diverge with all of them, so something else differs
(code, data, machine) · unresolved: with none or all of them it cannot be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDecision:
    """What a finished search found."""

    finding: Finding
    settings: tuple[int, ...] = ()
    """The settings that are enough, in order; empty unless found."""
    untold: tuple[int, ...] = ()
    """Those of them without which the run could not be judged, so that they may not be needed."""


def decide(answers: Answers, *, count: int) -> KeyDecision | None:
    """Return what the answers so far settle, or None while a question is open."""
    return _walk(answers, count)[1]


def next_questions(
    answers: Answers,
    *,
    count: int,
    running: Collection[Combination] = (),
    limit: int = 1,
) -> tuple[Combination, ...]:
    """Return the combinations worth trying now, best first; empty when none is.

    The first is what one worker would try. The others are what it would try next if that one, or
    one that is still running, diverged or did not: work for further workers.

    Args:
        answers: What was tried.
        count: How many settings there are. Those earlier in order are preferred where either of
            two would do, so put the likely ones first.
        running: Combinations being tried at this moment.
        limit: The most to return.
    """
    found: list[Combination] = []
    tables: deque[Answers] = deque([answers])
    for _ in range(4 * limit + 2 * len(running)):
        if not tables or len(found) == limit:
            break
        table = tables.popleft()
        question, _ = _walk(table, count)
        if question is None:
            continue
        if question not in running and question not in found:
            found.append(question)
        tables.extend({**table, question: guess} for guess in (True, False))
    return tuple(found)


def most_questions(count: int, needed: int) -> int:
    """Return how many questions are enough when more settings never cure: about k log2 n.

    Args:
        count: How many settings differ.
        needed: How many of them the answer holds.
    """
    return 2 + needed * ((count - 1).bit_length() + 2)


def _walk(answers: Answers, count: int) -> tuple[Combination | None, KeyDecision | None]:
    """Go through the search with the answers at hand; return the open question or the decision."""
    search = _search(count)
    try:
        question = next(search)
        while question in answers:
            question = search.send(answers[question])
    except StopIteration as end:
        return None, end.value
    return question, None


def _search(count: int) -> Generator[Combination, bool | None, KeyDecision]:
    nothing, everything = frozenset[int](), frozenset(range(count))
    # All of them first: when that does not diverge, one question was enough.
    with_all = yield everything
    if not with_all:
        return KeyDecision(finding="unresolved" if with_all is None else "not_explained")
    without = yield nothing
    if without or without is None:
        return KeyDecision(finding="unresolved" if without is None else "good_diverges")
    needed = nothing
    open_ones = list(range(count))
    while not (yield needed):
        low, high = 0, len(open_ones)  # diverges with the first `high`, not seen to with `low`
        while high - low > 1:
            middle = (low + high) // 2
            if (yield needed.union(open_ones[:middle])):
                high = middle
            else:
                low = middle
        needed |= {open_ones[high - 1]}
        open_ones = open_ones[: high - 1]
    untold: set[int] = set()
    for setting in sorted(needed):
        fewer = yield needed - {setting}
        if fewer:
            needed -= {setting}
        elif fewer is None:
            untold.add(setting)
    return KeyDecision(
        finding="found",
        settings=tuple(sorted(needed)),
        untold=tuple(sorted(untold & needed)),
    )
