"""The Hugging Face Trainer writes 0.0 where the loss was NaN; the gradient norms give it away.

Unless `logging_nan_inf_filter` is off, the Trainer replaces a loss that is NaN by the mean of what
it has summed up since its last entry: a repeated average at first, then 0.0. Whatever shows its
log, also TensorBoard and MLflow, shows that. So a loss of exactly 0.0 whose gradient norm is no
finite number is a NaN in hiding. With the filter off the sum never recovers: one NaN, and every
later entry is NaN, whatever the loss was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

AWAY_FROM_ZERO = 0.01
"""A loss this large does not fall to exactly 0.0, for good, by learning."""


def unhidden(
    losses: Mapping[int, float], norms: Mapping[int, float], *, trainer: bool
) -> tuple[dict[int, float], list[str]]:
    """Return the losses with hidden NaNs made visible, and what was found.

    Args:
        losses: Step → training loss.
        norms: Step → gradient norm, empty when it was not logged.
        trainer: Whether the Trainer wrote this log; then zeros that stay are NaN without norms too.
    """
    hidden = [step for step, loss in losses.items() if loss == 0.0 and _is_nan(norms.get(step))]
    if trainer and not norms:
        hidden = _zeros_at_the_end(losses)
    shown = dict(losses) | dict.fromkeys(hidden, math.nan)
    warnings = []
    if hidden:
        how = "though it was far from zero before" if not norms else "with a gradient norm of NaN"
        warnings.append(
            f"the loss is exactly 0.0 at {len(hidden)} point(s) from step {hidden[0]} on, {how}: "
            "so the Hugging Face Trainer hides a NaN. It was read as NaN; "
            "logging_nan_inf_filter=False shows it"
        )
    if trainer and (stuck := _stuck(shown, norms)):
        shown = {step: loss for step, loss in shown.items() if step not in stuck}
        warnings.append(
            f"the loss is NaN from step {min(stuck)} on while gradient norms stay finite: the "
            "Trainer's running sum keeps one NaN for ever. What the loss was from there on is not "
            "known, and it is not used"
        )
    return shown, warnings


def _is_nan(norm: float | None) -> bool:
    return norm is not None and not math.isfinite(norm)


def _zeros_at_the_end(losses: Mapping[int, float]) -> list[int]:
    zeros: list[int] = []
    for step, loss in reversed(list(losses.items())):
        if loss != 0.0:
            return zeros[::-1] if abs(loss) > AWAY_FROM_ZERO else []
        zeros.append(step)
    return []


def _stuck(losses: Mapping[int, float], norms: Mapping[int, float]) -> set[int]:
    """Return the steps of a NaN that lasts to the end though the last gradients are finite."""
    stuck: set[int] = set()
    for step, loss in reversed(list(losses.items())):
        if not math.isnan(loss) or (not stuck and not math.isfinite(norms.get(step, math.nan))):
            break
        stuck.add(step)
    return stuck
