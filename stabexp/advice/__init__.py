"""Settings a training could have: the learning rate found by a ramp, the clip norm by its record.

Nothing here is a run. What trains is put back bit for bit, and what reads only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "FoundRate": "stabexp.advice.lr_finder",
    "find_rate": "stabexp.advice.lr_finder",
    "finder_svg": "stabexp.advice.finder_plot",
    "finder_text": "stabexp.advice.finder_words",
    "ClipAdvice": "stabexp.advice.clipping",
    "advise_clip": "stabexp.advice.clipping",
    "clip_text": "stabexp.advice.clip_words",
}

__all__ = [
    "ClipAdvice",
    "FoundRate",
    "advise_clip",
    "clip_text",
    "find_rate",
    "finder_svg",
    "finder_text",
]

if TYPE_CHECKING:
    from stabexp.advice.clip_words import clip_text
    from stabexp.advice.clipping import ClipAdvice, advise_clip
    from stabexp.advice.finder_plot import finder_svg
    from stabexp.advice.finder_words import finder_text
    from stabexp.advice.lr_finder import FoundRate, find_rate


def __getattr__(name: str) -> Any:
    """Import a name on first use: the finder needs torch, the clip adviser does not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stabexp.advice' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
