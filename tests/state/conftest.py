"""The small training that the tests of exact replay share."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

_PLACE = Path(__file__).parent / "training_world.py"
_SPEC = importlib.util.spec_from_file_location("training_world", _PLACE)
assert _SPEC is not None
assert _SPEC.loader is not None
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)


@pytest.fixture
def make_world():
    """Build a fresh training: make_world(optimizer, scheduler)."""
    return _MODULE.World


@pytest.fixture
def python():
    """Run a Python program in a new process that finds this package; return the process."""

    def start(*arguments, **options):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **options,
        )

    return start


@pytest.fixture
def world_script():
    return _PLACE
