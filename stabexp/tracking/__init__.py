"""What a run leaves behind: a directory that is the truth, and MLflow as a view of it.

Training appends to files and never imports mlflow, so a dead server neither blocks a run nor loses
a number. A niced process (`stabexp.tracking.uploader`) ships what is there and remembers how far it
got.
"""

from __future__ import annotations

from stabexp.tracking.catalogue import (
    DEFAULT_ROOT,
    find_run,
    list_runs,
    local_tracking_uri,
    new_run_id,
    run_path,
    settled_uri,
)
from stabexp.tracking.lock import exclusive
from stabexp.tracking.manifest import Kind, Manifest, Status
from stabexp.tracking.run_directory import RunDirectory
from stabexp.tracking.step_log import StepLog, read_steps
from stabexp.tracking.web_view import web_url

__all__ = [
    "DEFAULT_ROOT",
    "Kind",
    "Manifest",
    "RunDirectory",
    "Status",
    "StepLog",
    "exclusive",
    "find_run",
    "list_runs",
    "local_tracking_uri",
    "new_run_id",
    "read_steps",
    "run_path",
    "settled_uri",
    "web_url",
]
