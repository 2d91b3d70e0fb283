"""What a replay may change: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stabexp.config import Document
from stabexp.interventions.adam_eps import AdamEps
from stabexp.interventions.base import Intervention
from stabexp.interventions.batch_size import BatchSize
from stabexp.interventions.betas import Betas
from stabexp.interventions.clip_norm import ClipNorm
from stabexp.interventions.eager import Eager
from stabexp.interventions.exact_modules import ExactModules
from stabexp.interventions.frozen_scan import FrozenScan
from stabexp.interventions.gradient_scale import GradientScale
from stabexp.interventions.hold_rate import HoldRate
from stabexp.interventions.init_scale import InitScale
from stabexp.interventions.layer_rate import LayerRate
from stabexp.interventions.learning_rate import LearningRate
from stabexp.interventions.loss_clamp import LossClamp
from stabexp.interventions.optimizer_options import OptimizerOptions
from stabexp.interventions.optimizer_state import OptimizerState
from stabexp.interventions.precision import Precision, PrecisionName
from stabexp.interventions.replace_samples import ReplaceSamples
from stabexp.interventions.safe_operation import SafeOperation
from stabexp.interventions.show_samples import ShowSamples
from stabexp.interventions.shuffle import Shuffle
from stabexp.interventions.skip_updates import SkipUpdates
from stabexp.interventions.standardise_inputs import StandardiseInputs
from stabexp.interventions.usual_init import UsualInit
from stabexp.interventions.warmup import Warmup, ramp
from stabexp.interventions.weight_decay import WeightDecay
from stabexp.plugins import component
from stabexp.records import Change

INTERVENTIONS: dict[str, type[Intervention]] = {
    kind.variable: kind
    for kind in (
        LearningRate,
        Warmup,
        ClipNorm,
        Precision,
        BatchSize,
        Shuffle,
        ReplaceSamples,
        ShowSamples,
        FrozenScan,
        HoldRate,
        LayerRate,
        WeightDecay,
        SkipUpdates,
        LossClamp,
        GradientScale,
        AdamEps,
        Betas,
        OptimizerState,
        InitScale,
        UsualInit,
        ExactModules,
        SafeOperation,
        Eager,
        StandardiseInputs,
    )
}

__all__ = [
    "INTERVENTIONS",
    "AdamEps",
    "BatchSize",
    "Betas",
    "ClipNorm",
    "Eager",
    "ExactModules",
    "FrozenScan",
    "GradientScale",
    "HoldRate",
    "InitScale",
    "Intervention",
    "LayerRate",
    "LearningRate",
    "LossClamp",
    "OptimizerOptions",
    "OptimizerState",
    "Precision",
    "PrecisionName",
    "ReplaceSamples",
    "SafeOperation",
    "ShowSamples",
    "Shuffle",
    "SkipUpdates",
    "StandardiseInputs",
    "UsualInit",
    "Warmup",
    "WeightDecay",
    "build",
    "intervention",
    "ramp",
]


def build(
    changes: Iterable[Change] | Mapping[str, Any], *, base: Path | None = None
) -> tuple[Intervention, ...]:
    """Return the interventions for a trial's changes, or for a YAML mapping variable → dose.

    `ease.py:Ease` names a class in a file below `base`.

    Raises:
        ConfigError: If a variable is unknown or a dose is not allowed for it.
    """
    pairs = (
        list(changes.items())
        if isinstance(changes, Mapping)
        else [(change.variable, change.dose) for change in changes]
    )
    return tuple(intervention(variable, dose, base=base) for variable, dose in pairs)


def intervention(
    variable: str, dose: Any, *, base: Path | None = None, document: Document | None = None
) -> Intervention:
    """Return one intervention; `document` is where variable and dose were given, for messages.

    Raises:
        ConfigError: If the variable is unknown or the dose is not allowed for it.
    """
    return component(
        INTERVENTIONS,
        "interventions",
        variable,
        {"dose": dose},
        parent=Intervention,
        base=base,
        document=document,
    )
