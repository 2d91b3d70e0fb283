"""Where and how hard a fault strikes: a program, and four numbers from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.benchmark.faults.base import Fault, between, samples_at
from experiments.benchmark.faults.configuration import Reconfigured
from experiments.benchmark.programs.base import Recipe


@dataclass(frozen=True, kw_only=True)
class Place:
    """A program, and four numbers from 0 to 1 that say where and how hard a fault strikes."""

    family: str
    recipe: Recipe
    wide: str
    samples: int
    seed: int
    number: int
    """Which of the fault's draws in this program, from 0."""
    numbers: tuple[float, ...]

    @property
    def severity(self) -> float:
        """How strong, 0 to 1."""
        return self.numbers[0]

    @property
    def at(self) -> int:
        """The step at which a late fault strikes: within the first pass over the data."""
        last = min(800, self.samples // self.recipe.batch - 60)
        return round(between(self.numbers[1], 120, last))

    def ids(self, at: int, *, count: int = 1) -> tuple[int, ...]:
        """Return sample ids that come up for the first time at step `at`."""
        return samples_at(at, size=self.samples, recipe=self.recipe, seed=self.seed, count=count)

    def until(self, at: int) -> Reconfigured:
        """Return the run's length for a fault that strikes at step `at`."""
        return Reconfigured(steps=at + 120)


Maker = Callable[[Place], Fault]
"""How a place becomes a fault."""
