"""What a sample of the data holds, in a form that people can look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePart:
    """One input or target of a sample: an image, a text, or numbers."""

    name: str
    """Its key or place in the sample: "input_ids", "0"; "" when the sample is one thing."""
    kind: Literal["image", "text", "numbers", "unknown"]
    text: str = ""
    """The text itself; for numbers, what they are in a line; for unknown, why it is not shown."""
    image: str = ""
    """A PNG, base64 without a prefix; "" for other kinds."""
    values: tuple[float, ...] = ()
    """The first numbers, flattened; empty for other kinds."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    unusual: str = ""
    """What sets it apart from ordinary samples: "3 of 784 values are NaN"; "" when nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleView:
    """One sample as it was fed to the model."""

    sample: int
    """Its id in the dataset; in a stream, the batch's number."""
    blamed: bool
    """True for a sample at fault, False for an ordinary one beside it."""
    parts: tuple[SamplePart, ...]
    step: int | None = None
    """The first step of the run that used it, where that is known."""
    stood_out: bool = False
    """Whether it stood out when it was shown alone, though nothing is blamed on it."""
