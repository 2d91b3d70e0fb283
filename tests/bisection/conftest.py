"""A bisect of a scripted world, without training: real search, real tree, trials looked up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# Loaded by path: tests are not a package.
_PLACE = Path(__file__).parent / "scripted_world.py"
_SPEC = importlib.util.spec_from_file_location("scripted_world", _PLACE)
assert _SPEC is not None
assert _SPEC.loader is not None
_WORLD = importlib.util.module_from_spec(_SPEC)
sys.modules["scripted_world"] = _WORLD
_SPEC.loader.exec_module(_WORLD)
