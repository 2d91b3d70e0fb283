"""Broken samples: a value out of range, a NaN, a label that is wrong and counts far too much."""

from __future__ import annotations

from typing import Literal

from experiments.benchmark.faults.base import Fault, columns
from stabexp.tasks.data import InMemory

Defect = Literal["huge", "nan", "label"]


class BrokenSamples(Fault):
    """A few samples are broken in the table itself, so they are broken whenever they come up."""

    def __init__(self, ids: tuple[int, ...], *, defect: Defect, factor: float, at: int) -> None:
        """Break the samples `ids`, of which the first comes up at step `at`.

        In text there is no value to be huge: there the sample's weight is what is broken.
        """
        self.ids = ids
        self.defect = defect
        self.factor = factor
        self.at = at

    def dataset(self, data: InMemory) -> InMemory:
        inputs, targets, weights = columns(data)
        rows = list(self.ids)
        broken = inputs if inputs.is_floating_point() else weights
        if self.defect == "nan":
            broken[rows] = float("nan")
            return InMemory(inputs, targets, weights)
        if self.defect == "label":
            weights[rows] = self.factor
        else:
            broken[rows] *= self.factor
        targets[rows] = targets[[(row + 1) % len(targets) for row in rows]]
        return InMemory(inputs, targets, weights)

    def strikes(self) -> int | None:
        return self.at

    def samples(self) -> tuple[int, ...]:
        return self.ids


class ShuffledLabels(Fault):
    """Inputs and targets do not belong together, so there is nothing to learn but frequencies."""

    watches_progress = True

    def dataset(self, data: InMemory) -> InMemory:
        inputs, targets, weights = columns(data)
        return InMemory(inputs, targets.roll(len(targets) // 2 + 7, 0), weights)


class BlankSample(Fault):
    """One sample is blank, which is allowed; what the code makes of it is another matter."""

    def __init__(self, ids: tuple[int, ...], *, at: int) -> None:
        self.ids = ids
        self.at = at

    def dataset(self, data: InMemory) -> InMemory:
        inputs, targets, weights = columns(data)
        inputs[list(self.ids)] = 0 if inputs.is_floating_point() else BLANK
        return InMemory(inputs, targets, weights)

    def strikes(self) -> int | None:
        return self.at

    def samples(self) -> tuple[int, ...]:
        return self.ids


BLANK = 96
"""Token for any character outside the vocabulary; stands for padding here."""
