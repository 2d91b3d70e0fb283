"""What keeps a training stable while it runs: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.config import component
from stabexp.stabilisers.base import Stabiliser

STABILISERS: dict[str, type[Stabiliser]] = {}

__all__ = ["STABILISERS", "Stabiliser", "build"]


def build(stabilisers: Mapping[str, Any]) -> dict[str, Stabiliser]:
    """Return by name the stabilisers that a YAML mapping name → arguments asks for.

    Raises:
        ConfigError: If a name or an argument is unknown.
    """
    built = {
        name: component(STABILISERS, "stabilisers", name, args)
        for name, args in stabilisers.items()
    }
    return {name: item for name, item in built.items() if isinstance(item, Stabiliser)}
