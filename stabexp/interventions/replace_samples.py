"""Show other samples in place of chosen ones, and leave everything else as it is.

Not a remedy but a question to the data: when a crash stays away without the very samples it began
with, and comes without as many others, it hangs on those samples and on no setting.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention


class ReplaceSamples(Intervention):
    """Puts its neighbour in the dataset in place of each chosen sample, whenever it comes up."""

    variable: ClassVar[str] = "replace_samples"

    dose: str
    """Ids of the samples to leave out, separated by commas."""

    @field_validator("dose")
    @classmethod
    def _ids(cls, value: str) -> str:
        if not re.fullmatch(r"\d+(,\d+)*", value):
            raise ValueError(f"expected sample ids, for example 12,55; found {value!r}")
        return value

    def replaced_samples(self) -> frozenset[int]:
        return frozenset(int(part) for part in self.dose.split(","))
