"""Before a training begins, a few updates of it are tried and closely watched.

Nothing is recorded. What is found is told with its place, its figures, why it matters and what to
change (source rows A4, A8, A10, A11, A19, A20, B7, B8, B9, B11, B15, B16, B17).
"""

from __future__ import annotations

from stabexp.preflight.result import Finding, ModuleRange, Preflight
from stabexp.preflight.text import preflight_text

__all__ = ["Finding", "ModuleRange", "Preflight", "preflight_text"]
