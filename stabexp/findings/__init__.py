"""What the step records of a run show, as findings: symptom, figures, likely causes, next check.

Two tables hold what is known before any run: which causes a symptom has, and what to check first.
Everything else is measured on the run, with limits calibrated on its own healthy steps.
"""

from __future__ import annotations

from stabexp.findings.finding import Check, Finding, Likely, Symptom
from stabexp.findings.limits import Limits, limits_of
from stabexp.findings.questions import UNKNOWN, Question, questions_of
from stabexp.findings.symptoms import findings_of
from stabexp.findings.taxonomy import CAUSES, CHECKS, TAXONOMY

__all__ = [
    "CAUSES",
    "CHECKS",
    "TAXONOMY",
    "UNKNOWN",
    "Check",
    "Finding",
    "Likely",
    "Limits",
    "Question",
    "Symptom",
    "findings_of",
    "limits_of",
    "questions_of",
]
