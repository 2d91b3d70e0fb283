"""Every detector by its YAML name."""

from __future__ import annotations

from stabexp.detectors.base import Detector
from stabexp.detectors.divergence import Divergence
from stabexp.detectors.gradient_explosion import GradientExplosion
from stabexp.detectors.loss_spike import LossSpike
from stabexp.detectors.non_finite import NonFinite
from stabexp.detectors.oscillation import Oscillation
from stabexp.detectors.plateau import Plateau

DETECTORS: dict[str, type[Detector]] = {
    "non_finite": NonFinite,
    "divergence": Divergence,
    "gradient_explosion": GradientExplosion,
    "loss_spike": LossSpike,
    "oscillation": Oscillation,
    "plateau": Plateau,
}

DEFAULT_DETECTORS: tuple[str, ...] = ("non_finite", "divergence", "gradient_explosion")
"""Used when the experiment names none: those that stay silent on healthy runs of all kinds."""
