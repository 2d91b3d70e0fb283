"""The nouns of the project: what a step showed, what a trial did, what the verdict says.

All of them are frozen and hold plain values, so they can be written to a file, read back by another
version and compared. Nothing here computes.
"""

from __future__ import annotations

from stabexp.records.plain import from_json, to_json
from stabexp.records.recoveries import IncidentKind, Recovery, RecoveryAction, RemedyName
from stabexp.records.samples import SamplePart, SampleView
from stabexp.records.steps import CheckpointInfo, Divergence, Pattern, StepRecord
from stabexp.records.trials import Change, Outcome, Role, TrialRecord, TrialSpec
from stabexp.records.verdicts import (
    BLAMELESS,
    FAMILIES,
    VARIABLES,
    Cause,
    Culprit,
    Cure,
    Evidence,
    Hypothesis,
    RuledOut,
    RunResult,
    Verdict,
)

__all__ = [
    "BLAMELESS",
    "FAMILIES",
    "VARIABLES",
    "Cause",
    "Change",
    "CheckpointInfo",
    "Culprit",
    "Cure",
    "Divergence",
    "Evidence",
    "Hypothesis",
    "IncidentKind",
    "Outcome",
    "Pattern",
    "Recovery",
    "RecoveryAction",
    "RemedyName",
    "Role",
    "RuledOut",
    "RunResult",
    "SamplePart",
    "SampleView",
    "StepRecord",
    "TrialRecord",
    "TrialSpec",
    "Verdict",
    "from_json",
    "to_json",
]
