"""A ladder: the doses of one variable worth trying, from the mildest to the strongest.

The doses are those that separated causes in practice: rate cuts span three decades because a cut
of ten is sometimes not enough, clip norms are multiples of what the run's own gradients were while
it was healthy, and precision only moves towards more exact numbers. A variable can have nothing to
try (an fp64 run, a batch that already is the dataset); then the reason is the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stabexp.config import suggest
from stabexp.errors import ConfigError
from stabexp.records import VARIABLES

Dose = float | int | str

RATE_FACTORS = (0.7, 0.5, 0.35, 0.25, 0.1, 0.03, 0.01, 0.001)
CLIP_MULTIPLES = (4.0, 2.0, 1.0, 0.5, 0.25, 0.1)
BATCH_FACTORS = (2, 4, 16)
WARMUP_STEPS = (10, 25, 50, 100)
SAFER_PRECISIONS: dict[str, tuple[str, ...]] = {
    "fp16_unscaled": ("fp16", "bf16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "bf16": ("fp32",),
    "pure_fp16": ("fp16", "fp32"),
    "pure_bf16": ("bf16", "fp32"),
    "fp32": ("fp64",),
    "fp64": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """One variable and its doses, mildest first; never empty."""

    variable: str
    doses: tuple[Dose, ...]
    original: Dose | None
    """The value in the diverged run, in the dose's terms (1.0 for a factor); None when unset."""

    def label(self, index: int) -> str:
        """Return the dose as people read it: "learning_rate ×0.5", "warmup 25"."""
        times = "×" if self.variable in {"learning_rate", "batch_size"} else ""
        dose = self.doses[index]
        shown = f"{dose:g}" if isinstance(dose, float) else str(dose)
        return f"{self.variable} {times}{shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLadder:
    """A variable with nothing to try."""

    variable: str
    reason: str
    """Half a sentence for people."""


def ladder_for(
    variable: str,
    *,
    lr: float,
    healthy_norm: float,
    clip_norm: float | None,
    precision: str,
    batch_size: int,
    dataset_size: int | None,
    warmup_steps: int,
    total_steps: int,
) -> Ladder | NoLadder:
    """Return the doses to try for a variable, given how the diverged run was set up.

    Args:
        variable: One of `records.VARIABLES`.
        lr: The run's highest learning rate up to the divergence.
        healthy_norm: Median gradient norm (unscaled, before clipping) of the run's healthy steps.
        clip_norm: The configured threshold, None without clipping.
        precision: The run's precision by its YAML name.
        batch_size: Samples per update.
        dataset_size: Samples in one pass, None when there is no end or it is unknown.
        warmup_steps: Length of the linear ramp the run has, 0 without one.
        total_steps: How many steps the run was to have.

    Raises:
        ConfigError: If the variable or the precision is unknown.
    """
    match variable:
        case "learning_rate":
            if not lr > 0:
                return NoLadder(variable=variable, reason=f"the rate is {lr:g}: nothing to lower")
            return Ladder(variable=variable, doses=RATE_FACTORS, original=1.0)
        case "clip_norm":
            return _clip_ladder(healthy_norm, clip_norm)
        case "batch_size":
            largest = math.inf if dataset_size is None else dataset_size
            factors = tuple(k for k in BATCH_FACTORS if batch_size * k <= largest)
            reason = f"{dataset_size} samples are less than two batches of {batch_size}"
            return _ladder(variable, factors, original=1, reason=reason)
        case "precision":
            if precision not in SAFER_PRECISIONS:
                hint = suggest(precision, list(SAFER_PRECISIONS))
                raise ConfigError(f"precision: unknown value '{precision}'; {hint}")
            reason = f"{precision} is already the most exact"
            return _ladder(variable, SAFER_PRECISIONS[precision], original=precision, reason=reason)
        case "warmup":
            lengths = tuple(n for n in WARMUP_STEPS if warmup_steps < n < total_steps / 2)
            reason = (
                f"no warmup longer than the present {warmup_steps} steps"
                f" ends within half of the run's {total_steps}"
            )
            return _ladder(variable, lengths, original=warmup_steps, reason=reason)
    raise ConfigError(f"variables: unknown variable '{variable}'; {suggest(variable, VARIABLES)}")


def _clip_ladder(healthy_norm: float, clip_norm: float | None) -> Ladder | NoLadder:
    if not 0 < healthy_norm < math.inf:
        reason = f"the healthy gradient norm is {healthy_norm:g}: nothing to measure a clip norm by"
        return NoLadder(variable="clip_norm", reason=reason)
    norms = [float(f"{multiple * healthy_norm:.3g}") for multiple in CLIP_MULTIPLES]
    below = tuple(norm for norm in norms if clip_norm is None or norm < clip_norm)
    reason = f"the clip norm {clip_norm} is already below a tenth of the healthy gradient norm"
    return _ladder("clip_norm", below, original=clip_norm, reason=reason)


def _ladder(
    variable: str, doses: tuple[Dose, ...], *, original: Dose | None, reason: str
) -> Ladder | NoLadder:
    if not doses:
        return NoLadder(variable=variable, reason=reason)
    return Ladder(variable=variable, doses=doses, original=original)
