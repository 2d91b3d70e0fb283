"""What an old run's curves say, also of a run that stabexp did not record.

One reader for each kind of log returns its curves as written. The rest is the same for all: find
out which curve is which, judge them with the live detectors, and say as an opinion what they
suggest.
"""

from __future__ import annotations

from stabexp.diagnosis.advice import KNOWABLE
from stabexp.diagnosis.curves import keeper
from stabexp.diagnosis.diagnosing import diagnose_log, diagnose_records
from stabexp.diagnosis.mlflow_run import read_mlflow_run
from stabexp.diagnosis.names import Quantity
from stabexp.diagnosis.result import Check, Diagnosis, Opinion, UsedCurve
from stabexp.diagnosis.sources import read_log
from stabexp.diagnosis.text import diagnosis_text

__all__ = [
    "KNOWABLE",
    "Check",
    "Diagnosis",
    "Opinion",
    "Quantity",
    "UsedCurve",
    "diagnose_log",
    "diagnose_records",
    "diagnosis_text",
    "keeper",
    "read_log",
    "read_mlflow_run",
]
