"""Run directories as Prometheus metrics, with a Grafana dashboard and alert rules for them.

A process of its own reads the files that a training writes. So nothing of it is on the training
thread, a healthy run does not know of it, and a run whose training died is still on the board.
"""

from __future__ import annotations

from stabexp.boards.files import DASHBOARD, RULES, packaged, write_out
from stabexp.boards.metrics import LAYERS_SHOWN, METRICS, Metric, Sample
from stabexp.boards.run_view import RunView
from stabexp.boards.shown_runs import ShownRuns, Wanted

__all__ = [
    "DASHBOARD",
    "LAYERS_SHOWN",
    "METRICS",
    "RULES",
    "Metric",
    "RunView",
    "Sample",
    "ShownRuns",
    "Wanted",
    "packaged",
    "write_out",
]
