"""When a run counts as diverged: pure rules over the step records, one file for each."""

from __future__ import annotations

from stabexp.detectors.base import Detector, Finding
from stabexp.detectors.good import last_good_step
from stabexp.detectors.judging import build, history_needed, judge
from stabexp.detectors.onset import find_onset
from stabexp.detectors.pattern import classify
from stabexp.detectors.table import DEFAULT_DETECTORS, DETECTORS
from stabexp.detectors.telemetry import opinion

__all__ = [
    "DEFAULT_DETECTORS",
    "DETECTORS",
    "Detector",
    "Finding",
    "build",
    "classify",
    "find_onset",
    "history_needed",
    "judge",
    "last_good_step",
    "opinion",
]
