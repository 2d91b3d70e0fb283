"""Show samples one by one to a training that stands still, so that all meet the same state.

Not a training at all but a look at the data through the eyes of a checkpoint: each sample's own
loss and gradient norm, where a batch only shows their mean.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention
from stabexp.interventions.show_samples import checked_batches, read_batches


class FrozenScan(Intervention):
    """Applies no update and shows chosen samples, each in a batch of its own.

    Where a batch of one cannot be normalised, partners come with it: 3+5,17+5 scans 3 and 17 in
    the company of 5. The first id of a batch is the one that is looked at.
    """

    variable: ClassVar[str] = "frozen_scan"

    dose: str
    """Ids of the samples to scan, separated by commas; partners follow after plus signs."""

    @field_validator("dose")
    @classmethod
    def _ids(cls, value: str) -> str:
        return checked_batches(value)

    def freezes(self) -> bool:
        return True

    def batches(self) -> tuple[tuple[int, ...], ...]:
        return read_batches(self.dose)
