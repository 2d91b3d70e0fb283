"""What the run itself needs to know about a training, whoever wrote the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stabexp.training.run import Run


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """One training's fixed settings, in plain values."""

    name: str
    seed: int = 0
    steps: int | None = 100
    """How many optimizer updates the training makes in all; None when its own code decides."""
    device: str = "cpu"
    deterministic: bool = True
    threads: int | None = None
    """torch threads on the CPU; None leaves torch's choice."""
    lr: float | None = None
    """The configured learning rate, for reports; None when the training function owns it."""
    precision: str = "fp32"
    clip_norm: float | None = None
    warmup_steps: int = 0
    batch_size: int = 32
    """Samples per micro-batch."""
    accumulate: int = 1
    loader_workers: int = 0
    """Processes that prepare batches ahead; 0 prepares them in the training process."""
    checkpoint_every: int = 50
    checkpoint_keep: int = 3
    monitors: Mapping[str, Any] = field(default_factory=lambda: {"layers": {}})
    """Monitor name → arguments."""
    detectors: Mapping[str, Any] = field(default_factory=dict)
    """Detector name → arguments; empty for the default set."""
    interventions: Mapping[str, Any] = field(default_factory=dict)
    """Variable → dose, in force for the whole run."""
    stabilisers: Mapping[str, Any] = field(default_factory=dict)
    """Stabiliser name → arguments."""
    show_samples: bool = True
    """Whether views of single samples may be kept, for reports."""
    base: Path | None = None
    """Folder that plug-ins in files are named from; None: the current one."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A training that can be run any number of times: settings and the function that trains."""

    settings: RunSettings
    train: Callable[[Run], None]
    describe: Callable[[], Mapping[str, Any]] = dict
    """Facts about task and data for reports; empty when the training is the user's own function."""
    configuration: str = ""
    """Digest of every setting that decides the training's course."""
    own_loop: bool = False
    """Whether the training function is the user's, whose settings nobody wrote into a file."""
    code: tuple[Path, ...] = ()
    """Files with the user's own training code."""
