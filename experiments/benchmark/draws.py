"""Every seeded run of the benchmark: which fault, in which program, how strong, where, which seed.

The numbers come from a Latin hypercube per fault: each of four numbers is spread evenly over 0 to 1
over all draws of that fault, in an order of its own. So 20 draws are 20 different cases and not one
case with 20 seeds. Everything follows from names; there is no file to keep.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from experiments.benchmark.catalogue import ENTRIES, Entry
from experiments.benchmark.faults.base import Fault
from experiments.benchmark.heldout import HELD_OUT
from experiments.benchmark.place import Place
from experiments.benchmark.programs import family

NUMBERS = 4
"""Drawn per case: severity, position, and two for what else an entry leaves open."""

SPARE = frozenset({"healthy", "marginal", "joint", "not_reproduced", "inconclusive"})
"""Causes at which no single thing may be blamed."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One seeded run."""

    name: str
    """"rate_jump-gpt_pre-1"."""
    entry: Entry
    family: str
    number: int
    """Which of the fault's draws in this program, from 0."""
    numbers: tuple[float, ...]
    seed: int

    @property
    def token(self) -> str:
        """Eight digits that say nothing: what the program's folder knows of the draw."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:8]

    @property
    def cause(self) -> str:
        """The known cause."""
        return self.entry.cause

    @property
    def spare(self) -> bool:
        """Whether nothing may be blamed."""
        return self.cause in SPARE

    @property
    def held_out(self) -> bool:
        """Whether the program's family was never looked at."""
        return self.family in HELD_OUT

    @property
    def place(self) -> Place:
        """Where and how hard it strikes."""
        kind = family(self.family)
        return Place(
            family=self.family,
            recipe=kind.healthy,
            wide=kind.wide,
            samples=kind.samples,
            seed=self.seed,
            number=self.number,
            numbers=self.numbers,
        )

    def fault(self, *, fixed: bool = False) -> Fault:
        """Return the fault, or what is left of it when the one thing that is wrong is set right."""
        return self.entry.fixed(self.place) if fixed else self.entry.fault(self.place)


@cache
def all_draws() -> tuple[Draw, ...]:
    """Return every draw, in the order of the catalogue."""
    return tuple(draw for entry in ENTRIES for draw in _of(entry))


def _of(entry: Entry) -> list[Draw]:
    names = [(f, number) for f in entry.families for number in range(entry.draws)]
    stream = random.Random(entry.name)
    columns = []
    for _ in range(NUMBERS):
        order = list(range(len(names)))
        stream.shuffle(order)
        columns.append([(place + stream.random()) / len(names) for place in order])
    return [
        Draw(
            name=f"{entry.name}-{name}-{number}",
            entry=entry,
            family=name,
            number=number,
            numbers=tuple(column[index] for column in columns),
            seed=stream.randrange(10_000),
        )
        for index, (name, number) in enumerate(names)
    ]


@cache
def _tokens() -> dict[str, Draw]:
    return {draw.token: draw for draw in all_draws()}


def by_token(token: str) -> Draw:
    """Return the draw that a program's folder names."""
    return _tokens()[token]


def selected(
    draws: Sequence[Draw],
    *,
    only: frozenset[str] = frozenset(),
    families: frozenset[str] = frozenset(),
    held_out: bool | None = None,
    limit: int | None = None,
) -> list[Draw]:
    """Return the draws asked for.

    Args:
        draws: All of them.
        only: Faults, causes or names of draws; empty for any.
        families: Program families; empty for any.
        held_out: Held-out families only, the others only, or None for both.
        limit: How many at most, spread evenly over the list.
    """
    chosen = [
        draw
        for draw in draws
        if (not only or only & {draw.entry.name, draw.cause, draw.name})
        and (not families or draw.family in families)
        and (held_out is None or draw.held_out == held_out)
    ]
    if limit is not None and limit < len(chosen):
        chosen = [chosen[index * len(chosen) // limit] for index in range(limit)]
    return chosen
