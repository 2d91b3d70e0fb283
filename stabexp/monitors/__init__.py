"""What is measured each step: one file, one class, one YAML name each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabexp.config import Component, component
from stabexp.monitors.base import Measurements, Monitor
from stabexp.monitors.half_range import HalfRange
from stabexp.monitors.layers import Layers

MONITORS: dict[str, type[Component]] = {"layers": Layers, "half_range": HalfRange}
DEFAULT_MONITORS: tuple[str, ...] = ("layers",)

__all__ = [
    "DEFAULT_MONITORS",
    "MONITORS",
    "HalfRange",
    "Layers",
    "Measurements",
    "Monitor",
    "build",
]


def build(monitors: Mapping[str, Any]) -> tuple[Monitor, ...]:
    """Return the monitors a YAML mapping name → arguments asks for.

    Raises:
        ConfigError: If a name or an argument is unknown.
    """
    built = [component(MONITORS, "monitors", name, args) for name, args in monitors.items()]
    return tuple(item for item in built if isinstance(item, Monitor))
