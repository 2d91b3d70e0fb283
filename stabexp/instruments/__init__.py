"""What can watch a replay closely: one file, one class, one name each."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stabexp.config import suggest
from stabexp.errors import ConfigError
from stabexp.instruments.base import Instrument, Watched
from stabexp.plugins import component

INSTRUMENTS: dict[str, str] = {
    "locate": "stabexp.instruments.locate:Locate",
    "rules": "stabexp.instruments.rules:Rules",
    "half_modules": "stabexp.instruments.half_modules:HalfModules",
    "shown_batches": "stabexp.instruments.shown_batches:ShownBatches",
    "tensor_digests": "stabexp.instruments.tensor_digests:TensorDigests",
}
"""Name → "module:Class"; they are imported when they are used."""

__all__ = ["INSTRUMENTS", "Instrument", "Watched", "build"]


def build(instruments: Mapping[str, Mapping[str, Any]]) -> dict[str, Instrument]:
    """Return the instruments that a mapping name → arguments asks for, by name.

    Raises:
        ConfigError: If a name or an argument is unknown.
    """
    found: dict[str, Instrument] = {}
    for name, arguments in instruments.items():
        if name not in INSTRUMENTS:
            hint = suggest(name, list(INSTRUMENTS))
            raise ConfigError(f"instruments: unknown instrument {name!r}; {hint}")
        module, _, kind = INSTRUMENTS[name].partition(":")
        table = {name: getattr(import_module(module), kind)}
        made = component(table, "instruments", name, arguments)
        assert isinstance(made, Instrument)
        found[name] = made
    return found
