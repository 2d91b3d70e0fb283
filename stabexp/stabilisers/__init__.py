"""What keeps a training stable while it runs: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.plugins import component
from stabexp.stabilisers.activation_checkpointing import ActivationCheckpointing
from stabexp.stabilisers.adaptive_clip import AdaptiveClip
from stabexp.stabilisers.base import Stabiliser
from stabexp.stabilisers.danger_window import DangerWindow
from stabexp.stabilisers.early_warning import EarlyWarning
from stabexp.stabilisers.freeze import Freeze
from stabexp.stabilisers.gradual_unfreezing import GradualUnfreezing
from stabexp.stabilisers.keep_fp32 import KeepFp32
from stabexp.stabilisers.layer_clip import LayerClip
from stabexp.stabilisers.logit_temperature import LogitTemperature
from stabexp.stabilisers.loss_clamp import LossClamp
from stabexp.stabilisers.loss_scaling import LossScaling
from stabexp.stabilisers.safe_cross_entropy import SafeCrossEntropy
from stabexp.stabilisers.skip_nonfinite import SkipNonfinite

STABILISERS: dict[str, type[Stabiliser]] = {
    "activation_checkpointing": ActivationCheckpointing,
    "adaptive_clip": AdaptiveClip,
    "early_warning": EarlyWarning,
    "freeze": Freeze,
    "gradual_unfreezing": GradualUnfreezing,
    "keep_fp32": KeepFp32,
    "layer_clip": LayerClip,
    "logit_temperature": LogitTemperature,
    "loss_clamp": LossClamp,
    "loss_scaling": LossScaling,
    "safe_cross_entropy": SafeCrossEntropy,
    "skip_nonfinite": SkipNonfinite,
    "danger_window": DangerWindow,
}

__all__ = ["STABILISERS", "Stabiliser", "build"]


def build(stabilisers: Mapping[str, Any], *, base: Path | None = None) -> dict[str, Stabiliser]:
    """Return by name the stabilisers that a YAML mapping name → arguments asks for.

    `calm.py:Calm` names a class in a file below `base`.

    Raises:
        ConfigError: If a name or an argument is unknown.
    """
    return {
        name: component(STABILISERS, "stabilisers", name, args, parent=Stabiliser, base=base)
        for name, args in stabilisers.items()
    }
