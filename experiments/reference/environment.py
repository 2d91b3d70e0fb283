"""The environment variables that the package reads."""

from __future__ import annotations

from experiments.reference.constants import explained, matching
from experiments.reference.markdown import joined, table

_LEAD = """The environment variables that stabexp reads. Those of MLflow, torch and the trainers
count as ever: the process that sends a run has the environment of the one that
trains."""

_READ = {
    "STABEXP_ROOT": "where runs are kept, unless `--root` says so; default `stabexp_runs`",
    "NO_COLOR": "set to anything: no colour",
    "FORCE_COLOR": "set to anything: colour, also in a pipe",
    "TERM": "`dumb`: no colour, no line that is written again",
    "COLUMNS": "how wide the terminal is",
    "MLFLOW_TRACKING_URI": "where results go, unless `tracking.uri` says so",
    "MLFLOW_TRACKING_USERNAME": "with the password: who we are to an MLflow server that asks",
    "MLFLOW_TRACKING_PASSWORD": "see there",
    "MLFLOW_TRACKING_TOKEN": "a bearer token in place of both",
    "CUBLAS_WORKSPACE_CONFIG": (
        "a deterministic training on a GPU sets it to `:4096:8`, where it is not deterministic "
        "already, and puts it back in the end"
    ),
    "WORLD_SIZE": "how many processes train together; `stabexp check` looks at it",
    "PYTHONPATH": "handed on to the process that sends a run, so that it finds the same package",
}
_SET = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0: the sending process tries again by itself",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10 seconds, there and for `stabexp ui`",
    "MLFLOW_DISABLE_TELEMETRY": "true: nothing is sent to anybody but your server",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true: the links would lead nowhere",
    "MLFLOW_MODEL_CATALOG_URI": "empty for `stabexp ui`, which needs no catalogue from the network",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false for `stabexp ui`, which runs no jobs",
    "GIT_OPTIONAL_LOCKS": "0: asking git for the commit takes no lock",
}
_IN_A_REPLAY = {
    "MLFLOW_REGISTRY_URI": "",
    "MLFLOW_ALLOW_FILE_STORE": "",
    "MLFLOW_RUN_ID": "",
    "MLFLOW_EXPERIMENT_ID": "",
    "MLFLOW_EXPERIMENT_NAME": "",
}
"""Set or taken away so that what a replay's own code tells MLflow goes nowhere."""

_PATTERN = r"(?:STABEXP|MLFLOW|CUBLAS|CUDA|TORCH|GIT)_[A-Z_]+|WORLD_SIZE|PYTHONPATH|COLUMNS|TERM"


def page() -> str:
    """Return the page."""
    found = matching(_PATTERN + "|NO_COLOR|FORCE_COLOR")
    meanings = _READ | _SET | _IN_A_REPLAY
    explained("environment variables", found, meanings, place=__name__)
    return joined(
        "# Environment variables",
        _LEAD,
        table(("variable", "meaning"), [(f"`{name}`", text) for name, text in _READ.items()]),
        "## What stabexp sets for MLflow and git",
        "In its own processes, where you have not set it yourself.",
        table(("variable", "to what, and why"), [(f"`{n}`", text) for n, text in _SET.items()]),
        "In a replay every variable of MLflow is taken away or points to a store that is thrown "
        "away, so that what your training function tells MLflow is told once, by the run.",
    )
