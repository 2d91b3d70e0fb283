"""Keep one operation inside its domain: log away from 0, a division away from 0, and so on.

When a run trains through with only this operation kept safe, the operation is the cause.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention

_OPERATION = re.compile(r"[^\s@,]+(@[^@,]+:\d+)?")


class SafeOperation(Intervention):
    """Replaces chosen operations by versions that stay finite, everywhere or at one line."""

    variable: ClassVar[str] = "safe_operation"

    dose: str
    """Operations, separated by commas: log, or log@train.py:31 for one place in the code only."""

    @field_validator("dose")
    @classmethod
    def _operations(cls, value: str) -> str:
        if not all(_OPERATION.fullmatch(part.strip()) for part in value.split(",")):
            raise ValueError(
                f"expected operations, for example log or log@train.py:31; found {value!r}"
            )
        return value

    def safe_operations(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.dose.split(","))
