"""Finds the mildest dose that cures, and whose next stronger dose cures too, in few questions.

From mild to strong a ladder usually reads diverged … cured … stalled: too little does nothing, too
much stops the run from learning. So "diverged" sends the search to stronger doses, "stalled" to
milder ones, and "cured" to milder ones with a bound already in hand. About one ladder in ten is not
that orderly: a cure whose stronger neighbour fails was luck, and the search goes on among the doses
not yet excluded. No dose is asked twice, so it always ends. Doses are named by their index, 0 the
mildest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from stabexp.bisection.ladder import Dose, Ladder
from stabexp.records import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a finished search found; indices count from the mildest dose."""

    index: int | None
    """The mildest cure, None when no dose that was asked cures."""
    robust: bool = False
    """Whether the next stronger dose keeps the crash away too, or there is none."""
    milder: int | None = None
    """The next milder dose that could be judged; it does not cure."""
    stronger: int | None = None
    """The next stronger dose that could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderAnswer:
    """A decided ladder, in the ladder's own doses."""

    ladder: Ladder
    decision: Decision
    outcomes: Mapping[int, Outcome]
    """What each asked dose did, by index."""
    attributes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What was told about each asked dose, by index."""

    @property
    def dose(self) -> Dose | None:
        """The mildest cure, None when no dose cures."""
        return self._dose(self.decision.index)

    @property
    def milder_dose(self) -> Dose | None:
        """The next milder dose, which does not cure; None when `dose` is the mildest."""
        return self._dose(self.decision.milder)

    @property
    def stronger_dose(self) -> Dose | None:
        """The next stronger dose; None when `dose` is the strongest."""
        return self._dose(self.decision.stronger)

    def _dose(self, index: int | None) -> Dose | None:
        return None if index is None else self.ladder.doses[index]


def decide(outcomes: Mapping[int, Outcome], *, count: int) -> Decision | None:
    """Return what the outcomes so far settle, or None while a question is open."""
    return _Table(outcomes, count).decision()


def next_questions(
    outcomes: Mapping[int, Outcome],
    *,
    count: int,
    running: Collection[int] = (),
    limit: int = 1,
) -> tuple[int, ...]:
    """Return the doses worth trying now, best first; empty when none is.

    The first is the one a single worker would try. The others are what it would try next if that
    one, or one that is still running, cured, diverged or stalled: work for further workers.

    Args:
        outcomes: Dose index → what it did. "delayed" counts as diverged; an inconclusive dose is
            left out of the ladder.
        count: How many doses the ladder has.
        running: Doses being tried at this moment.
        limit: The most to return.
    """
    found: list[int] = []
    tables: deque[Mapping[int, Outcome]] = deque([outcomes])
    while tables and len(found) < limit:
        table = tables.popleft()
        question = _Table(table, count).question()
        if question is None:
            continue
        if question not in running and question not in found:
            found.append(question)
        guesses: tuple[Outcome, ...] = ("cured", "diverged", "stalled")
        tables.extend({**table, question: guess} for guess in guesses)
    return tuple(found)


class _Table:
    """The outcomes so far, by rung: doses that could not be judged are no rungs."""

    def __init__(self, outcomes: Mapping[int, Outcome], count: int) -> None:
        self._count = count
        self._doses = [i for i in range(count) if outcomes.get(i) != "inconclusive"]
        self._size = len(self._doses)
        self._asked = {
            rung: outcomes[dose] for rung, dose in enumerate(self._doses) if dose in outcomes
        }

    def question(self) -> int | None:
        """Return the dose a single worker would try next, None when the ladder is decided."""
        rung = self._next_rung()
        return None if rung is None else self._doses[rung]

    def decision(self) -> Decision | None:
        """Return the mildest robust cure, else the best cure known; None while undecided."""
        if self._next_rung() is not None:
            return None
        cures = [rung for rung in self._asked if self._cured(rung)]
        if not cures:
            return Decision(index=None)
        # Of cures that are not robust, one with a stalled neighbour is a narrow band, not luck.
        best = min(cures, key=lambda r: (not self._robust(r), self._diverged(r + 1), r))
        return Decision(
            index=self._doses[best],
            robust=self._robust(best),
            milder=self._doses[best - 1] if best > 0 else None,
            stronger=self._doses[best + 1] if best + 1 < self._size else None,
        )

    def _next_rung(self) -> int | None:
        if not self._asked:
            # Somewhat to the strong side: whether anything cures at all matters most.
            return 3 * self._size // 5 if self._size else None
        standing = [r for r in self._asked if self._robust(r) or self._unconfirmed(r)]
        if standing:
            return self._next_below(min(standing))
        low = max((r for r in self._asked if self._diverged(r)), default=-1)
        stalled = [r for r, outcome in self._asked.items() if outcome == "stalled" and r > low]
        found = self._middle(low, min(stalled, default=self._size))
        if found is None and stalled:
            # No dose learned. What survives without learning may also be too mild by far: a rate
            # ten times too high, after a cut of ten from a hundred times.
            found = self._middle(max(stalled), self._size)
        return found

    def _next_below(self, cure: int) -> int | None:
        """Narrow down where the cures begin, then see whether the mildest of them is robust."""
        low = max((r for r in self._asked if r < cure and not self._cured(r)), default=-1)
        if cure - low > 1:
            return (low + cure) // 2
        return cure + 1 if self._unconfirmed(cure) else None

    def _middle(self, low: int, high: int) -> int | None:
        """Return the open rung nearest to the middle of those strictly between two."""
        between = [r for r in range(low + 1, high) if r not in self._asked]
        return min(between, key=lambda r: abs(r - (low + high) // 2), default=None)

    def _cured(self, rung: int) -> bool:
        return self._asked.get(rung) == "cured"

    def _diverged(self, rung: int) -> bool:
        return self._asked.get(rung) in {"diverged", "delayed"}

    def _robust(self, rung: int) -> bool:
        strongest = self._doses[rung] == self._count - 1
        # A stronger dose that survives without learning is no luck of the milder one either.
        return self._cured(rung) and (
            strongest or self._asked.get(rung + 1) in {"cured", "stalled"}
        )

    def _unconfirmed(self, rung: int) -> bool:
        above = rung + 1
        return self._cured(rung) and above < self._size and above not in self._asked
