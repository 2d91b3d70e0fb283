"""The experiment file as one typed object: everything `stabexp run exp.yaml` needs to know."""

from __future__ import annotations

from stabexp.experiment.documents import SOURCE, from_document, load, open_source
from stabexp.experiment.program import flat, program, replay_job, setup_of
from stabexp.experiment.sections import (
    BatchSettings,
    BisectSettings,
    CheckpointSettings,
    Experiment,
    TaskSettings,
    TrackingSettings,
    TrainSettings,
)

__all__ = [
    "SOURCE",
    "BatchSettings",
    "BisectSettings",
    "CheckpointSettings",
    "Experiment",
    "TaskSettings",
    "TrackingSettings",
    "TrainSettings",
    "flat",
    "from_document",
    "load",
    "open_source",
    "program",
    "replay_job",
    "setup_of",
]
