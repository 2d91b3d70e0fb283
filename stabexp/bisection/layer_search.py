"""Finds the smallest set of modules in which a change must act to keep the divergence away.

Which modules have to stay in float32, which layers have to learn more slowly, which have to stand
still? A change in a module acts on all inside it, so a question is a set of subtrees of the model.
In the order of `named_modules`, turned so that children come before their parent, every beginning
is such a set. So one binary search finds the first module without which no shorter beginning cures;
that module stays in every further question, and the search goes on before it, until the modules
found cure by themselves. Each of them is then necessary, if more modules never cure less. Whatever
the outcomes, the set that is named has been asked and has cured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass

from stabexp.records import Outcome

Modules = frozenset[str]
"""Names of modules, each standing for itself and all inside it; WHOLE for the model."""

WHOLE = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDecision:
    """What a finished search found."""

    modules: tuple[str, ...] | None
    """The smallest set, in the model's order; None when even the whole model does not cure."""
    outcome: Outcome | None
    """What that set did; "stalled" when the divergence stayed away and so did learning."""
    hinted: bool = False
    """Whether the hint was enough: the search never left the modules it named."""


def decide(
    outcomes: Mapping[Modules, Outcome], *, names: Sequence[str], hint: Collection[str] = ()
) -> LayerDecision | None:
    """Return what the outcomes so far settle, or None while a question is open.

    Args:
        outcomes: Question → what the replay with the change in these modules did. "stalled" counts
            as keeping the divergence away, "inconclusive" as not doing so.
        names: The modules that may be named, parents before children as `named_modules` has them;
            "" and WHOLE are the model itself.
        hint: Modules suspected beforehand, such as those whose activations overflowed.
    """
    found = _walk(outcomes, names, hint)
    return found if isinstance(found, LayerDecision) else None


def next_questions(
    outcomes: Mapping[Modules, Outcome],
    *,
    names: Sequence[str],
    hint: Collection[str] = (),
    running: Collection[Modules] = (),
    limit: int = 1,
) -> tuple[Modules, ...]:
    """Return the sets worth trying now, best first; empty when the search is decided.

    The first is the one a single worker would try. The others are what it would try next if that
    one, or one that is still running, cured or diverged: work for further workers.
    """
    found: list[Modules] = []
    tables: deque[Mapping[Modules, Outcome]] = deque([outcomes])
    while tables and len(found) < limit:
        table = tables.popleft()
        question = _walk(table, names, hint)
        if isinstance(question, LayerDecision):
            continue
        if question not in running and question not in found:
            found.append(question)
        guesses: tuple[Outcome, ...] = ("cured", "diverged")
        tables.extend({**table, question: guess} for guess in guesses)
    return tuple(found)


def _walk(
    outcomes: Mapping[Modules, Outcome], names: Sequence[str], hint: Collection[str]
) -> LayerDecision | Modules:
    """Follow the search as far as the outcomes reach: the decision, or the open question."""
    tree = _Tree(names)
    steps = _search(tree, hint)
    try:
        question = next(steps)
        while question in outcomes:
            question = steps.send(outcomes[question] in {"cured", "stalled"})
    except StopIteration as stop:
        chosen, hinted = stop.value
        if chosen is None:
            return LayerDecision(modules=None, outcome=outcomes.get(tree.question(tree.all)))
        modules = tuple(name for name in tree.names if name in chosen)
        return LayerDecision(modules=modules, outcome=outcomes[chosen], hinted=hinted)
    return question


def _search(
    tree: _Tree, hint: Collection[str]
) -> Generator[Modules, bool, tuple[Modules | None, bool]]:
    """Yield questions, take whether the divergence stayed away, return the set and if hinted."""
    suspected = tree.with_inside([tree.places[name] for name in hint if name in tree.places])
    hinted = False
    if suspected and suspected != tree.all:
        hinted = yield tree.question(suspected)
    if not hinted and not (yield tree.question(tree.all)):
        return None, False
    candidates = sorted(suspected if hinted else tree.all)
    found = frozenset[int]()
    while True:
        # The first `high` candidates cure together with what was found, the first `low` do not.
        low, high = 0, len(candidates)
        while high - low > 1:
            middle = (low + high) // 2
            beginning = found | tree.with_inside(candidates[:middle])
            if (yield tree.question(beginning)):
                high = middle
            else:
                low = middle
        found |= tree.with_inside([candidates[low]])
        candidates = [place for place in candidates[:low] if place not in found]
        chosen = tree.question(found)
        if not candidates or (yield chosen):
            return chosen, hinted


class _Tree:
    """The modules by place: children before their parent, so that a beginning is closed."""

    def __init__(self, names: Sequence[str]) -> None:
        """Raises ValueError without a single name."""
        if not names:
            raise ValueError("layer search: the model has no modules to choose from")
        self.names = tuple(dict.fromkeys(name or WHOLE for name in names))
        # Reversed pre-order puts every child before its parent.
        self._ordered = tuple(reversed(self.names))
        self.places = {name: place for place, name in enumerate(self._ordered)}
        self.all = frozenset(range(len(self.names)))
        self._inside = {
            place: frozenset(
                inner for inner, other in enumerate(self._ordered) if _lies_in(other, name)
            )
            for place, name in enumerate(self._ordered)
        }

    def with_inside(self, places: Collection[int]) -> frozenset[int]:
        """Return these places and those of all modules inside them."""
        return frozenset[int]().union(*(self._inside[place] for place in places))

    def question(self, places: Collection[int]) -> Modules:
        """Return the fewest names that stand for these places."""
        covered = frozenset[int]().union(*(self._inside[place] - {place} for place in places))
        return frozenset(self._ordered[place] for place in places if place not in covered)


def _lies_in(inner: str, outer: str) -> bool:
    return outer in (WHOLE, inner) or inner.startswith(f"{outer}.")
