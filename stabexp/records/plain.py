"""Records to JSON-ready values and back, non-finite numbers included."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")


_adapters: dict[type, Any] = {}


def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def to_json(record: Any) -> dict[str, Any]:
    """Return a record as JSON-ready values; NaN and ±Inf become "nan", "inf", "-inf"."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(record))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def from_json(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """Return a record of `kind` from what `to_json` gave; unknown keys are ignored.

    Raises:
        pydantic.ValidationError: If a field is missing or has the wrong type.
    """
    record: _T = _adapter(kind).validate_python(data)
    return record
