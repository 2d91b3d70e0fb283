"""What a replay changes about the data: which samples come, in which order, how many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.interventions import Intervention


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """The answers of a run's interventions about its data."""

    salt: int = 0
    """Selects another order of the same data; 0 is the run's own."""
    multiple: int = 1
    """How many times the usual samples go into each micro-batch."""
    replaced: frozenset[int] = frozenset()
    """Samples in whose place others are shown."""
    shown: tuple[tuple[int, ...], ...] = ()
    """Batches, by sample ids, that come before all others."""

    @classmethod
    def of(cls, interventions: Sequence[Intervention]) -> DataPlan:
        """Return what these interventions ask for."""
        return cls(
            salt=max((item.shuffle_salt() for item in interventions), default=0),
            multiple=max((item.batch_multiple() for item in interventions), default=1),
            replaced=frozenset[int]().union(*(item.replaced_samples() for item in interventions)),
            shown=next((b for item in interventions if (b := item.batches()) is not None), ()),
        )
