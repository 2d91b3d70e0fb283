"""What a replay may change: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabexp.config import component
from stabexp.interventions.base import Intervention
from stabexp.interventions.batch_size import BatchSize
from stabexp.interventions.clip_norm import ClipNorm
from stabexp.interventions.learning_rate import LearningRate
from stabexp.interventions.precision import Precision, PrecisionName
from stabexp.interventions.replace_samples import ReplaceSamples
from stabexp.interventions.shuffle import Shuffle
from stabexp.interventions.warmup import Warmup, ramp
from stabexp.records import Change

INTERVENTIONS: dict[str, type[Intervention]] = {
    kind.variable: kind
    for kind in (LearningRate, Warmup, ClipNorm, Precision, BatchSize, Shuffle, ReplaceSamples)
}

__all__ = [
    "INTERVENTIONS",
    "BatchSize",
    "ClipNorm",
    "Intervention",
    "LearningRate",
    "Precision",
    "PrecisionName",
    "ReplaceSamples",
    "Shuffle",
    "Warmup",
    "build",
    "ramp",
]


def build(changes: Iterable[Change] | Mapping[str, Any]) -> tuple[Intervention, ...]:
    """Return the interventions for a trial's changes, or for a YAML mapping variable → dose.

    Raises:
        ConfigError: If a variable is unknown or a dose is not allowed for it.
    """
    pairs = (
        list(changes.items())
        if isinstance(changes, Mapping)
        else [(change.variable, change.dose) for change in changes]
    )
    built = [
        component(INTERVENTIONS, "interventions", variable, {"dose": dose})
        for variable, dose in pairs
    ]
    return tuple(item for item in built if isinstance(item, Intervention))
