"""Three sets of monitors to choose from by one word: `monitors: standard`.

`ranks` is in none of them: its processes wait for each other, so all of them must run it.
`half_range` is for replays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.config import suggest
from stabexp.plugins import is_reference

LIGHT: Mapping[str, Mapping[str, Any]] = {
    "layers": {},
    "loss_curve": {},
    "loss_scale": {},
    "batch_size": {},
    "resources": {},
}

STANDARD: Mapping[str, Mapping[str, Any]] = {
    **LIGHT,
    "weights": {},
    "updates": {},
    "normalisation": {},
}

FULL: Mapping[str, Mapping[str, Any]] = {
    **STANDARD,
    "gradients": {},
    "activations": {},
    "attention": {},
    "moments": {},
}

PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "light": LIGHT,
    "standard": STANDARD,
    "full": FULL,
}
"""Name → monitor → arguments."""

PRESET_WORDS: Mapping[str, str] = {
    "light": "norms per layer, loss curve, loss scale, batch size, memory and speed",
    "standard": "light, and weights, update ratios and normalisation",
    "full": "standard, and gradients, activations, attention and the optimizer's moments",
}
"""Name → what is in it."""


def expanded(given: str | list[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return monitor → arguments for what an experiment file says under `monitors`.

    Args:
        given: A preset or a monitor, several of them, or name → arguments; of a monitor that is
            also in a preset the arguments given count.

    Raises:
        ValueError: If a preset is given arguments, or a single word is neither.
    """
    from stabexp.monitors import MONITORS

    if isinstance(given, str):
        known = [*PRESETS, *MONITORS]
        if given not in known and not is_reference(given):
            raise ValueError(f"{given!r} is no preset and no monitor; {suggest(given, known)}")
        given = [given]
    named = given if isinstance(given, Mapping) else {str(name): {} for name in given}
    found: dict[str, Any] = {}
    for name in named:
        if name in PRESETS:
            if named[name]:
                raise ValueError(
                    f"{name}: a preset takes no arguments; name the monitor beside it, for example "
                    f"{{{name}: {{}}, layers: {{every: 5}}}}"
                )
            found |= {monitor: dict(args) for monitor, args in PRESETS[name].items()}
    return found | {name: args for name, args in named.items() if name not in PRESETS}
