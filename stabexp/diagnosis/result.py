"""What a diagnosis says: whether and where the run diverged, and an opinion, not a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stabexp.findings import Finding, Question
from stabexp.records import Cause, Divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedCurve:
    """A curve that was judged."""

    quantity: str
    """Field of a step record: "loss", "grad_norm", "lr", …"""
    name: str
    """As the log spells it."""
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A detector, and whether the log has what it needs."""

    detector: str
    judged: bool
    note: str = ""
    """Why it could not judge, or how far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """The cause that the curves suggest. Nothing was replayed, so nothing is proved."""

    cause: Cause
    reason: str
    """With the figures."""
    limits: tuple[str, ...]
    """What these curves cannot show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What the curves of a run say after the fact."""

    source: str
    format: str
    """What kind of log it is."""
    status: Literal["healthy", "diverged"]
    divergence: Divergence | None
    """As the live detectors would have found it; steps are numbered as in the log."""
    onset_between: tuple[int, int] | None
    """First and last step at which it can have begun: a log does not show every step."""
    recovered: bool
    """True when the loss ends no higher than it was before the onset."""
    first_step: int
    last_step: int
    interval: int
    """Usual distance of two points, in steps."""
    first_loss: float
    last_loss: float
    """Median of the last five points; NaN when most of them are."""
    used: tuple[UsedCurve, ...]
    not_used: tuple[str, ...]
    """Names of further curves in the log."""
    warnings: tuple[str, ...]
    """What is odd about the log and how it was read, one sentence each."""
    checks: tuple[Check, ...]
    settings: Mapping[str, Any]
    """What is known of the configuration."""
    opinion: Opinion | None
    """None for a healthy run."""
    run_id: str | None
    """The stabexp run, when it is one."""
    next_step: str
    """What would prove it, in a sentence."""
    next_command: str
    """What to type for that."""
    findings: tuple[Finding, ...] = ()
    """Symptoms with their figures, likely causes and next checks, the gravest first."""
    questions: tuple[Question, ...] = ()
    """The conservative questions, answered; empty for a healthy run."""
    told: tuple[str, ...] = ()
    """What monitors and stabilisers said while the run trained, oldest first."""
