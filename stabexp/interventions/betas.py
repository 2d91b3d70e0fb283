"""Let Adam remember for a longer or a shorter time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.optimizer_options import OptimizerOptions


class Betas(OptimizerOptions):
    """Replaces `betas`; refused for an optimizer that has none."""

    variable: ClassVar[str] = "betas"

    dose: str
    """Decay of the first and the second moment, each in [0, 1), for example 0.9,0.95."""

    @field_validator("dose")
    @classmethod
    def _pair(cls, value: str) -> str:
        try:
            fits = len(_numbers(value)) == 2 and all(0 <= number < 1 for number in _numbers(value))
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"expected two numbers in [0, 1), for example 0.9,0.95; found {value!r}"
            )
        return value

    def optimizer_options(self) -> Mapping[str, float | tuple[float, float]]:
        first, second = _numbers(self.dose)
        return {"betas": (first, second)}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
