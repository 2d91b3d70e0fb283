"""What is measured each step: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.monitors.activations import Activations
from stabexp.monitors.attention import Attention
from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.batch_size import BatchSize
from stabexp.monitors.gradients import Gradients
from stabexp.monitors.half_range import HalfRange
from stabexp.monitors.layers import Layers
from stabexp.monitors.loss_curve import LossCurve
from stabexp.monitors.loss_scale import LossScale
from stabexp.monitors.moments import Moments
from stabexp.monitors.normalisation import Normalisation
from stabexp.monitors.ranks import Ranks
from stabexp.monitors.resources import Resources
from stabexp.monitors.updates import Updates
from stabexp.monitors.weights import Weights
from stabexp.plugins import component

MONITORS: dict[str, type[Monitor]] = {
    "layers": Layers,
    "gradients": Gradients,
    "weights": Weights,
    "updates": Updates,
    "activations": Activations,
    "attention": Attention,
    "normalisation": Normalisation,
    "moments": Moments,
    "loss_curve": LossCurve,
    "loss_scale": LossScale,
    "batch_size": BatchSize,
    "resources": Resources,
    "ranks": Ranks,
    "half_range": HalfRange,
}
DEFAULT_MONITORS: tuple[str, ...] = ("layers",)

__all__ = ["DEFAULT_MONITORS", "MONITORS", "Measurements", "Monitor", "build"]


def build(
    monitors: Mapping[str, Any],
    more: Mapping[str, Any] | None = None,
    *,
    base: Path | None = None,
) -> tuple[Monitor, ...]:
    """Return the monitors a YAML mapping name → arguments asks for.

    Args:
        monitors: Name → arguments; `watch.py:Watch` names a class in a file.
        more: Further ones, or other arguments for the same.
        base: Folder that file references start from.

    Raises:
        ConfigError: If a name or an argument is unknown.
    """
    return tuple(
        component(MONITORS, "monitors", name, args, parent=Monitor, base=base)
        for name, args in {**monitors, **(more or {})}.items()
    )
