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
    "check_setup": "stabexp.api",
    "recover": "stabexp.api",
    "replay": "stabexp.api",
    "report": "stabexp.api",
    "samples": "stabexp.api",
    "clip_advice": "stabexp.api",
    "compare": "stabexp.api",
    "diagnose": "stabexp.api",
    "figures": "stabexp.api",
    "health": "stabexp.api",
    "load": "stabexp.api",
    "locate": "stabexp.api",
    "lr_find": "stabexp.api",
    "lr_find_in": "stabexp.api",
    "warn": "stabexp.api",
    "RunResult": "stabexp.records",
    "Recovery": "stabexp.records",
    "Run": "stabexp.training",
    "Fork": "stabexp.training",
    "Experiment": "stabexp.experiment",
    "Task": "stabexp.tasks",
    "StepRecord": "stabexp.records",
    "Diagnosis": "stabexp.diagnosis",
    "Divergence": "stabexp.records",
    "Preflight": "stabexp.preflight",
    "TrialRecord": "stabexp.records",
    "Verdict": "stabexp.records",
    "StabexpError": "stabexp.errors",
    "safe_cross_entropy": "stabexp.stabilisers.losses",
}

__all__ = [
    "Diagnosis",
    "Divergence",
    "Experiment",
    "Fork",
    "Preflight",
    "Recovery",
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
    "check_setup",
    "clip_advice",
    "compare",
    "diagnose",
    "figures",
    "health",
    "load",
    "locate",
    "lr_find",
    "lr_find_in",
    "recover",
    "replay",
    "report",
    "run",
    "safe_cross_entropy",
    "samples",
    "warn",
]

if TYPE_CHECKING:
    from stabexp.api import (
        bisect,
        check,
        check_setup,
        clip_advice,
        compare,
        diagnose,
        figures,
        health,
        load,
        locate,
        lr_find,
        lr_find_in,
        recover,
        replay,
        report,
        run,
        samples,
        warn,
    )
    from stabexp.diagnosis import Diagnosis
    from stabexp.errors import StabexpError
    from stabexp.experiment import Experiment
    from stabexp.preflight import Preflight
    from stabexp.records import Divergence, Recovery, RunResult, StepRecord, TrialRecord, Verdict
    from stabexp.stabilisers.losses import safe_cross_entropy
    from stabexp.tasks import Task
    from stabexp.training import Fork, Run


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stabexp' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
