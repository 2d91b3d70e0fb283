"""Compute some modules in float32 while the rest of the model stays in half precision."""

from __future__ import annotations

from typing import ClassVar

from pydantic import field_validator

from stabexp.interventions.base import Intervention


class ExactModules(Intervention):
    """Turns autocast off inside chosen modules and widens what goes into them to float32.

    Under autocast their results stay float32, as they do when the same is written by hand, and the
    next operation narrows them as it needs; where the weights themselves are half, the results go
    back to half. What is float32 or wider already is left as it is.
    """

    variable: ClassVar[str] = "exact_modules"

    dose: str
    """Names of the modules, separated by commas; each includes all inside it. * is the model."""

    @field_validator("dose")
    @classmethod
    def _names(cls, value: str) -> str:
        if not all(part.strip() for part in value.split(",")):
            raise ValueError(
                f"expected module names, for example blocks.1.fc,head; found {value!r}"
            )
        return value

    def exact_modules(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.dose.split(","))
