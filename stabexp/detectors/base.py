"""A detector looks at the latest steps and says whether the run has left its healthy range.

Detectors are pure: the live run, its control replay and every trial are judged by the same code,
and an old run can be judged again from its step log.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from stabexp.config import Component
from stabexp.records import Pattern, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a detector saw at the newest step."""

    value: float
    """The measurement that crossed the limit."""
    limit: float
    message: str
    """One sentence with the figures."""
    pattern: Pattern | None = None
    """Set by a detector that knows it; else the shape of the loss decides."""
    onset: int | None = None
    """Set by a detector that knows it; else found by walking back from the newest step."""


class Detector(Component):
    """One rule for when a run counts as diverged."""

    @property
    def name(self) -> str:
        """The name of this detector in YAML: its class name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    @abstractmethod
    def history(self) -> int:
        """How many records, the newest included, `check` looks at."""

    @abstractmethod
    def check(self, records: Sequence[StepRecord]) -> Finding | None:
        """Judge the newest of the records; called after every step, so it has to be cheap.

        Args:
            records: At least one step, oldest first, the newest last. The run's first step may
                stand in front even when steps after it are left out: it tells the loss of the
                untrained model.

        Returns:
            The finding, or None while all is well or too little is known.
        """
