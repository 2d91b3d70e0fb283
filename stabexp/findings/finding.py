"""A finding names a symptom, what shows it, what is likely behind it, and the check that decides.

A symptom is not a cause, so a finding never ends at one: it lists causes in the order in which they
are worth a look, says which of them this run speaks for or against, and gives the command to type.
Source rows C1, C2, C3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Symptom = Literal[
    "explosion",
    "divergence",
    "not_decreasing",
    "oscillating",
    "overfitting",
    "non_finite",
    "exploding_gradient",
    "vanishing_gradient",
    "degenerate_layer",
]
"""What is wrong to look at. The first two are the ways in which a run is lost (row B1)."""

Weight = Literal["for", "", "against"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """A cause that can be behind a symptom, and what this run says of it."""

    cause: str
    """As in the taxonomy; a verdict's own word where there is one."""
    text: str
    weight: Weight = ""
    """Whether the run speaks for it or against it; empty where it says nothing."""
    why: str = ""
    """With the figures; empty where the run says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What would decide, changing one thing at a time."""

    what: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A symptom in a run's step records."""

    symptom: Symptom
    message: str
    """One sentence with the figures."""
    first_step: int
    last_step: int
    """Last step at which it was seen."""
    evidence: tuple[str, ...] = ()
    """Further figures, one sentence each."""
    layers: tuple[str, ...] = ()
    """Layers it was seen in, the first to show it first; empty where it is not a matter of layers
    or they were not measured."""
    likely: tuple[Likely, ...] = ()
    """Most worth a look first."""
    checks: tuple[Check, ...] = ()
    """In order of priority; the first one is what to do next."""
