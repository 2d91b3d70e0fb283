"""Show chosen samples first, in batches of their own, and then go on in the run's own order.

The same samples at another state tell bad data from a fragile state: a broken sample breaks a
healthy network too, a merely hard one does not.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention


class ShowSamples(Intervention):
    """Puts whole batches of chosen samples before the run's own ones.

    These batches are shown as they are: a sample that is replaced elsewhere stays itself in them.
    """

    variable: ClassVar[str] = "show_samples"

    dose: str
    """Batches separated by commas, the ids of one joined by plus signs: 3+5,17+5."""

    @field_validator("dose")
    @classmethod
    def _ids(cls, value: str) -> str:
        return checked_batches(value)

    def batches(self) -> tuple[tuple[int, ...], ...]:
        return read_batches(self.dose)


def checked_batches(text: str) -> str:
    """Return the text when it names batches of sample ids.

    Raises:
        ValueError: If it does not.
    """
    if not re.fullmatch(r"\d+(\+\d+)*(,\d+(\+\d+)*)*", text):
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        raise ValueError(f"expected batches of sample ids, for example 3+5,17+5; found {shown!r}")
    return text


def read_batches(text: str) -> tuple[tuple[int, ...], ...]:
    """Return ((3, 5), (17, 5)) for "3+5,17+5"."""
    return tuple(tuple(int(part) for part in batch.split("+")) for batch in text.split(","))


def write_batches(batches: tuple[tuple[int, ...], ...]) -> str:
    """Return the dose that shows these batches: what `read_batches` reads."""
    return ",".join("+".join(map(str, batch)) for batch in batches)
