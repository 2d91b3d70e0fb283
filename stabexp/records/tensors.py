"""What one stored tensor looks like: how many numbers, how large, and how many of them are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["parameter", "buffer", "gradient", "optimizer", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFigures:
    """Figures of a tensor; those of its values are over the finite ones, NaN when there is none."""

    name: str
    part: Part
    dtype: str
    shape: tuple[int, ...]
    nans: int
    infs: int
    zeros: int
    mean: float
    variance: float
    largest: float
    """Largest absolute value."""
    smallest: float
    """Lowest value, sign included."""
    typical: float
    """Median absolute value; of a sample when the tensor is large."""

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        total = 1
        for size in self.shape:
            total *= size
        return total

    @property
    def size(self) -> float:
        """How large its values usually are: single ones do not count."""
        return self.typical or float((self.mean**2 + self.variance) ** 0.5)
