"""Let some layers learn more slowly than the rest, or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention


class LayerRate(Intervention):
    """Multiplies the learning rate of chosen layers during the update."""

    variable: ClassVar[str] = "layer_rate"

    dose: str
    """Factors by module, for example encoder=0.1,head=0: everything inside a module shares its
    factor, the longest name decides, * is the whole model. 0 leaves the layer out of the update."""

    @field_validator("dose")
    @classmethod
    def _factors(cls, value: str) -> str:
        seen = set[str]()
        for part in value.split(","):
            name, separator, factor = part.partition("=")
            if not (name.strip() and separator and _is_factor(factor)) or name.strip() in seen:
                raise ValueError(
                    "expected each module once with a factor of at least 0, for example "
                    f"encoder=0.1,head=0; found {value!r}"
                )
            seen.add(name.strip())
        return value

    def layer_rates(self) -> Mapping[str, float]:
        pairs = [part.split("=") for part in self.dose.split(",")]
        return {name.strip(): float(factor) for name, factor in pairs}


def _is_factor(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False
