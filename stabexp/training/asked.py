"""What a run's interventions ask for at its boundaries, all of them taken together."""

from __future__ import annotations

from collections.abc import Sequence

from stabexp.interventions import Intervention
from stabexp.training.precision import FORMATS, NumberFormat
from stabexp.training.settings import RunSettings


class Asked:
    """The answers of several interventions as one."""

    def __init__(self, settings: RunSettings, interventions: Sequence[Intervention]) -> None:
        self._settings = settings
        self._interventions = interventions

    def clip(self, configured: float | None) -> float | None:
        """Return the norm to clip to where the loop itself clips to `configured`."""
        norm, own = configured, self._settings.clip_norm
        if own is not None:
            norm = own if norm is None else min(norm, own)
        for item in self._interventions:
            norm = item.clip_norm(norm)
        return norm

    def lr_scale(self, step: int) -> float:
        """Return the factor on every learning rate at `step`."""
        scale = 1.0
        for item in self._interventions:
            scale *= item.lr_scale(step, warmup_steps=self._settings.warmup_steps)
        return scale

    def other_format(self) -> NumberFormat | None:
        """Return the number format that an intervention asks for, None when none does."""
        name = ""
        for item in self._interventions:
            name = item.precision(name)
        return FORMATS[name] if name else None
