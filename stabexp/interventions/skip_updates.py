"""Leave chosen updates out, and let everything else go on.

Not a remedy but a question: when a crash stays away without one update, that update, or the batch
it was made from, began it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class SkipUpdates(Intervention):
    """Applies no update at chosen steps: no weight and no moment changes, the schedule goes on."""

    variable: ClassVar[str] = "skip_updates"

    dose: str
    """Steps from 0, separated by commas, ranges with both ends: 20-22,40."""

    @field_validator("dose")
    @classmethod
    def _steps(cls, value: str) -> str:
        try:
            _ranges(value)
        except ValueError:
            raise ValueError(f"expected steps, for example 20-22,40; found {value!r}") from None
        return value

    def skips_update(self, step: int) -> bool:
        return any(step in steps for steps in _ranges(self.dose))


def _ranges(text: str) -> list[range]:
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(part)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(part)
        found.append(range(first, last + 1))
    return found
