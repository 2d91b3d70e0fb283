"""The experiment file as one typed object: everything `stabexp run exp.yaml` needs to know."""

from __future__ import annotations

from stabexp.experiment.documents import (
    IN_MLFLOW_RUN,
    SOURCE,
    Given,
    as_file,
    command_of,
    from_document,
    given,
    load,
    open_source,
)
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
    "IN_MLFLOW_RUN",
    "SOURCE",
    "BatchSettings",
    "BisectSettings",
    "CheckpointSettings",
    "Experiment",
    "Given",
    "TaskSettings",
    "TrackingSettings",
    "TrainSettings",
    "as_file",
    "command_of",
    "flat",
    "from_document",
    "given",
    "load",
    "open_source",
    "program",
    "replay_job",
    "setup_of",
]
