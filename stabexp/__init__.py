"""A training run diverged: find out why, prove it, fix it.

The public names are imported on first use, because importing torch takes seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "run": "stabexp.api",
    "bisect": "stabexp.api",
    "check": "stabexp.api",
    "replay": "stabexp.api",
    "compare": "stabexp.api",
    "diagnose": "stabexp.api",
    "load": "stabexp.api",
    "RunResult": "stabexp.records",
    "Run": "stabexp.training",
    "Fork": "stabexp.training",
    "Experiment": "stabexp.experiment",
    "Task": "stabexp.tasks",
    "StepRecord": "stabexp.records",
    "Diagnosis": "stabexp.diagnosis",
    "Divergence": "stabexp.records",
    "TrialRecord": "stabexp.records",
    "Verdict": "stabexp.records",
    "StabexpError": "stabexp.errors",
}

__all__ = [
    "Diagnosis",
    "Divergence",
    "Experiment",
    "Fork",
    "Run",
    "RunResult",
    "StabexpError",
    "StepRecord",
    "Task",
    "TrialRecord",
    "Verdict",
    "__version__",
    "bisect",
    "check",
    "compare",
    "diagnose",
    "load",
    "replay",
    "run",
]

if TYPE_CHECKING:
    from stabexp.api import bisect, check, compare, diagnose, load, replay, run
    from stabexp.diagnosis import Diagnosis
    from stabexp.errors import StabexpError
    from stabexp.experiment import Experiment
    from stabexp.records import Divergence, RunResult, StepRecord, TrialRecord, Verdict
    from stabexp.tasks import Task
    from stabexp.training import Fork, Run


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stabexp' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
