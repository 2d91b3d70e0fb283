"""The Python interface: run an experiment, bisect a run, load what was recorded.

The only package that wires the parts together. The command line calls these functions and prints.
"""

from __future__ import annotations

from stabexp.api.bisecting import bisect, check
from stabexp.api.comparing import compare
from stabexp.api.diagnosing import diagnose
from stabexp.api.loading import Loaded, load
from stabexp.api.replaying import replay
from stabexp.api.training import resume, run

__all__ = ["Loaded", "bisect", "check", "compare", "diagnose", "load", "replay", "resume", "run"]
