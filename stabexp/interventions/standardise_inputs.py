"""Bring every input feature to mean 0 and standard deviation 1.

By the batch's own figures, so that a replay gives a batch the same values wherever it starts. That
also levels out a batch of wild inputs: ask about single batches and samples first.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from stabexp.interventions.base import Intervention


class StandardiseInputs(Intervention):
    """Standardises the first tensor of each batch, feature by feature, when it is floating-point.

    Features are the last dimension of inputs of two or three dimensions, the second of larger ones
    (channels of images). The first tensor of a tuple, list or dict is the input; the rest, targets
    among it, and inputs of one dimension, are left as they are.
    """

    variable: ClassVar[str] = "standardise_inputs"

    dose: Literal["on"]
    """There is only one: "on"."""

    def standardises_inputs(self) -> bool:
        return True
