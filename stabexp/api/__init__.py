"""The Python interface: run an experiment, bisect a run, load what was recorded.

The only package that wires the parts together. The command line calls these functions and prints.
"""

from __future__ import annotations

from stabexp.api.advising import lr_find, lr_find_in
from stabexp.api.bisecting import bisect, check
from stabexp.api.checking import check_setup, is_setup
from stabexp.api.clipping import clip_advice
from stabexp.api.comparing import compare
from stabexp.api.diagnosing import diagnose
from stabexp.api.diagnosing_layers import diagnose_layers
from stabexp.api.drawing import figures
from stabexp.api.loading import Loaded, load
from stabexp.api.locating import locate
from stabexp.api.recovering import recover
from stabexp.api.replaying import replay
from stabexp.api.reporting import report
from stabexp.api.sample_views import samples
from stabexp.api.state_health import health
from stabexp.api.training import resume, run
from stabexp.api.warning import warn

__all__ = [
    "Loaded",
    "bisect",
    "check",
    "check_setup",
    "clip_advice",
    "compare",
    "diagnose",
    "diagnose_layers",
    "figures",
    "health",
    "is_setup",
    "load",
    "locate",
    "lr_find",
    "lr_find_in",
    "recover",
    "replay",
    "report",
    "resume",
    "run",
    "samples",
    "warn",
]
