"""Train in another number format."""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention

PrecisionName = Literal["fp32", "bf16", "fp16", "fp16_unscaled", "pure_bf16", "pure_fp16", "fp64"]
"""fp32 · bf16, fp16: autocast, fp16 with dynamic loss scaling · fp16_unscaled: autocast without it
· pure_bf16, pure_fp16: the weights themselves are half · fp64."""


class Precision(Intervention):
    """Replaces the run's precision."""

    variable: ClassVar[str] = "precision"

    dose: PrecisionName
    """The precision to use instead."""

    def precision(self, configured: str) -> str:
        return self.dose
