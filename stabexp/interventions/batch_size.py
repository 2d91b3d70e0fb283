"""Put several times the samples into each batch, at the same learning rate."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from stabexp.interventions.base import Intervention


class BatchSize(Intervention):
    """Multiplies the number of samples in each micro-batch."""

    variable: ClassVar[str] = "batch_size"

    dose: int = Field(ge=1)
    """Factor on the configured batch size."""

    def batch_multiple(self) -> int:
        return self.dose
