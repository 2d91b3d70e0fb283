"""Run and Fork, the handle a training function receives, and the loop behind `task:`."""

from __future__ import annotations

from stabexp.training.execute import execute, fingerprint_of, prepare
from stabexp.training.fork import Fork
from stabexp.training.run import Run
from stabexp.training.settings import Program, RunSettings
from stabexp.training.yaml_loop import yaml_loop

__all__ = [
    "Fork",
    "Program",
    "Run",
    "RunSettings",
    "execute",
    "fingerprint_of",
    "prepare",
    "yaml_loop",
]
