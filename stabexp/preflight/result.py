"""What an examination before training found: place, figures, reason and remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is, or may well be, wrong with a training that has not begun."""

    name: str
    """What it is called: "raw_bytes", "double_step", …"""
    where: str
    """ "train.py:31", or the name of a parameter, module or schedule."""
    what: str
    """One sentence with the figures that were seen."""
    why: str
    """Why it matters."""
    change: str
    """What to do about it."""
    certain: bool = True
    """False where a correct training may look the same."""
    step: int = 0
    """The update of the dry run at which it was first seen."""
    samples: tuple[int, ...] = ()
    """Ids of the samples that showed it, where it is theirs."""
    leads_to: tuple[str, ...] = ()
    """Names of further findings that follow from it and are not listed by themselves."""


@dataclass(frozen=True, kw_only=True)
class ModuleRange:
    """How far one module is from the ends of half precision (source rows A8, A10)."""

    module: str
    dtype: str
    """Format of its output in the dry run."""
    largest: float
    """Largest absolute activation."""
    headroom: float
    """65,504 over `largest`: below 1 it overflows in float16."""
    vanishing: float | None
    """Share of its weights' non-zero gradient elements below 5.96e-8, which float16 cannot hold
    unless the loss is scaled; None where it has no weights with a gradient."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What a dry run of a training showed, before anything was trained."""

    name: str
    """The experiment."""
    updates: int
    """Updates that were made to look at it."""
    seconds: float
    findings: tuple[Finding, ...]
    """Certain ones first; those that follow from another are named there."""
    modules: tuple[ModuleRange, ...] = ()
    """Every module that computed something, in the order in which they ran."""
    unexamined: tuple[str, ...] = ()
    """What could not be looked at, and why, in plain sentences."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
