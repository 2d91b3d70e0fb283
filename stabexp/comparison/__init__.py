"""Where two runs part: the first step, the tensor, and the settings that make the difference."""

from __future__ import annotations

from stabexp.comparison.comparing import compare
from stabexp.comparison.configuration import (
    KeyDifference,
    Setting,
    differing_keys,
    patch_for,
    settings_of,
)
from stabexp.comparison.replaying import Asked, Side
from stabexp.comparison.result import Comparison, RecordDifference, StateDifference
from stabexp.comparison.step_records import first_differing_record
from stabexp.comparison.text import comparison_text

__all__ = [
    "Asked",
    "Comparison",
    "KeyDifference",
    "RecordDifference",
    "Setting",
    "Side",
    "StateDifference",
    "compare",
    "comparison_text",
    "differing_keys",
    "first_differing_record",
    "patch_for",
    "settings_of",
]
