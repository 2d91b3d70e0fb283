"""What one step showed, and what detectors and checkpoints say about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Pattern = Literal[
    "sudden_jump", "exponential_growth", "oscillating_divergence", "plateau", "unclear"
]
"""How the loss left its healthy range (source rows A2, C1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """What one optimizer update showed. Numbers may be NaN or ±Inf and are kept exactly."""

    step: int
    """Index of the update, from 0."""
    time: float
    """Unix seconds at the end of the step."""
    loss: float
    """Mean loss over the step's micro-batches, before the update."""
    lr: float
    """Learning rate of the first parameter group, as used in the update."""
    grad_norm: float
    """L2 norm over all gradients, unscaled, before clipping."""
    clip_coefficient: float = 1.0
    """Factor the gradients were multiplied by when clipping; 1.0 when they were not."""
    update_ratio: float = float("nan")
    """||after - before|| / ||before|| over the sampled parameters; no unit."""
    param_norm: float = float("nan")
    """L2 norm over all trainable parameters after the update."""
    loss_scale: float | None = None
    """Loss scale of the gradient scaler, None without one."""
    skipped: bool = False
    """True when the scaler, or an intervention, left this update out."""
    nonfinite_grads: int = 0
    """Parameters whose gradient holds a non-finite value."""
    nonfinite_params: int = 0
    """Parameters that hold a non-finite value after the update."""
    position: int = 0
    """Samples consumed before this step, over all passes."""
    batch_size: int = 0
    """Samples used in this step, over all micro-batches."""
    sample_ids: tuple[int, ...] = ()
    """Dataset indices used in this step, in order."""
    seconds: float = float("nan")
    """Wall time of the step, data loading included."""
    digest: str = ""
    """16 hexadecimal digits over the bits of all parameters after the update and of the loss."""
    layers: Mapping[str, Mapping[str, float]] | None = None
    """At a cadence: layer name → {"grad_norm": …, "weight_norm": …}."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What further monitors measured, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A detector's finding: the run left its healthy range and stayed out of it."""

    detector: str
    detected: int
    """Step at which the detector was sure."""
    onset: int
    """First step that looked wrong, walking back from `detected`."""
    pattern: Pattern
    value: float
    """The measurement that crossed the limit."""
    limit: float
    message: str
    """One sentence with the figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One saved state: the world just before step `step` runs."""

    step: int
    file: str
    """File name inside the run's checkpoints directory."""
    sha256: str
    bytes: int
    state_hash: str
    """Hash over all state that decides the next step, independent of the file format."""
    finite: bool
    """Whether every parameter and buffer was finite."""
