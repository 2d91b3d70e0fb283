"""What a bisect is about, and what its user asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stabexp.bisection.budget import Budget
from stabexp.bisection.facts import Setup
from stabexp.records import VARIABLES, Divergence, StepRecord


@dataclass(frozen=True, kw_only=True)
class Case:
    """The diverged run, as the bisect needs it."""

    run_id: str
    records: Sequence[StepRecord]
    divergence: Divergence
    setup: Setup
    dataset_size: int | None
    own_loop: bool
    """True when the training function is the user's."""
    command: tuple[str, ...]
    """Words of the command that starts the run again: `stabexp run exp.yaml -o seed=1`."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for, besides a verdict."""

    variables: Sequence[str] = VARIABLES
    """Settings that may be changed."""
    budget: Budget = field(default_factory=Budget)
    good: int | None = None
    """The checkpoint to start from; None takes the last good one."""
    bad: int | None = None
    """The step to take as the one at which the divergence was detected."""
    skip: Sequence[str] = ()
    """Checkpoints and ranges of steps never to start from."""
    seeds: int = 0
    """In how many further orders of the data a cure is tried again."""
    layers: bool = False
    """Whether to find the modules that must stay in float32."""
    thorough: bool = False
    """Whether to try every variable though the cause is found: what else hides the symptom?"""
