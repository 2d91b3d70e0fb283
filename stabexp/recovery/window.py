"""The danger window: the steps around a crash, from the fork to well past where it happened."""

from __future__ import annotations

from dataclasses import dataclass

from stabexp.records import Divergence

FACTOR, LEAST = 3, 25
"""It lasts three times as long as the crash took from the fork, and at least so much longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From `first` up to and without `last`."""

    first: int
    last: int


def window_after(fork: int, crash: Divergence, *, steps: int) -> Window:
    """Return the danger window of a run that goes on from `fork`, inside its planned steps."""
    distance = crash.detected - fork + 1
    last = fork + max(FACTOR * distance, distance + LEAST)
    return Window(first=fork, last=max(min(last, steps), fork + 1))
