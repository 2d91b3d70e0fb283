"""The files of a run directory."""

from __future__ import annotations

from experiments.reference.constants import explained, matching
from experiments.reference.markdown import joined, table

_LEAD = """What `stabexp run` and `stabexp bisect` leave on the disk, below `stabexp_runs/` or
what `--root` names. These files are the truth and MLflow is a view of them. They are
plain: JSON, one JSON object a line, YAML, text, SVG, and torch's own format for
checkpoints."""

RUN = {
    "run.json": "what it is: id, kind, parent, parameters, tags, who recorded it",
    "experiment.yaml": "the experiment as it was given, to read",
    "source.json": "the same as typed, with its folder and overrides: replays are built from it",
    "steps.jsonl": "every step, one line each: loss, norms, sample ids, digest; see below",
    "events.jsonl": "alarms of monitors, warnings, what stabilisers did; there when anything was",
    "divergence.json": "what a detector found; there when the run diverged",
    "emergency.json": "the last 100 losses and gradient norms, and where the states then are",
    "error.json": "the error that ended the run; there when one did",
    "fingerprint.json": "machine, versions and settings that decide bits, for replays",
    "environment.txt": "the packages that were installed",
    "loop.json": "what a training function of your own was seen to do: rate, batch, clipping",
    "data.json": "facts about the data and what a model that knows nothing scores",
    "fork.json": "of a run that goes on from another one: which, and from which step",
    "recovery.json": "what `stabexp recover` did, action by action",
    "checkpoints.jsonl": "in `checkpoints/`: one line per saved state, with its checksum and hash",
    "gradient_flow.svg": "in `layers/`: gradient norm over depth and steps",
    "gradient_heatmap.svg": "in `layers/`: gradient norm of every layer and step",
    "weight_heatmap.svg": "in `layers/`: weight norm of every layer and step",
    "onset_heatmap.svg": "in `layers/`: the steps around the onset",
    "loss.svg": "in `report/`: the loss with the divergence, for the note in MLflow",
    "verdict.html": "in `report/`: the report, one file without a network",
    "verdict.md": "in `report/`: the verdict as Markdown, for an issue or a chat",
    "verdict.json": "in `report/` and in a bisect: the verdict with its evidence and trials",
}
BISECT = {
    "options.json": "what it was asked: variables, budget, checkpoints",
    "optuna.db": "the doses as an Optuna study, one for each variable",
    "trial.json": "in `trials/KEY/`: the trial's record; there once it ran to its end",
    "samples.json": "what the samples at fault hold, as text, pictures and numbers",
}
SENDING = {
    "outbox.jsonl": "what MLflow is to be told besides the steps: tags, notes, files, the end",
    "upload.json": "how far each MLflow store has received the run",
    "upload.log": "what the sending process said",
    "run.lock": "held by the process that trains",
    "bisect.lock": "held by the process that bisects or replays",
    "recover.lock": "held by the process that recovers",
    "upload.lock": "held by the process that sends",
}
ROOT = {
    "mlflow.db": "the local MLflow store, unless another one is named",
    "server.log": "what the local MLflow server said while `stabexp ui` showed it",
}
NOT_IN_A_RUN = {
    "costs.json",
    "unclipped_bursts.yaml",
    "alert_rules.yaml",
    "grafana_dashboard.json",
    "trainer_state.json",
    "experiment.yaml",
}
_PATTERN = r"[a-z][a-z_-]*\.(?:json|jsonl|yaml|txt|svg|html|md|diff|lock|log|db|pt)"

_STEP = """A line of `steps.jsonl` is a [`StepRecord`](python.md#steprecord): `digest` is 16
hexadecimal digits over the bits of all parameters after the update and of the loss,
by which a replay is compared. NaN and ±Inf are written as `"NaN"`, `"Infinity"` and
`"-Infinity"`, because JSON has no such numbers. `stabexp.load(RUN_ID)` reads all of
it."""


def page() -> str:
    """Return the page."""
    known = RUN | BISECT | SENDING | ROOT
    found = matching(_PATTERN) - NOT_IN_A_RUN | {"experiment.yaml"}
    further = explained("files of a run", found, known, place=__name__)
    head = ("file", "what is in it")
    return joined(
        "# The run directory",
        _LEAD,
        "## A run: `stabexp_runs/runs/RUN_ID/`",
        table(head, [*_rows(RUN), ("`checkpoints/step-00000120.pt`", "the state before step 120")]),
        "## A bisect: `bisects/bisect-1/` in it",
        "A bisect and each of its trials, in `trials/KEY/`, have `run.json`, `steps.jsonl` and "
        "`outbox.jsonl` of their own. A trial's key is a digest of what it changes, so none is "
        "made twice.",
        table(head, _rows(BISECT)),
        "## On the way to MLflow",
        table(head, _rows(SENDING)),
        *_further(further),
        "## Beside the runs: `stabexp_runs/`",
        table(head, [*_rows(ROOT), ("`artifacts/`", "the files of that store")]),
        "## A line of the step log",
        _STEP,
    )


def _further(files: dict[str, str]) -> list[str]:
    """Return the part about files that are explained where their names are defined."""
    if not files:
        return []
    rows = [
        (f"`{name}`", text.removeprefix("In a run directory: ").rstrip("."))
        for name, text in files.items()
    ]
    return ["## Further files of a run", table(("file", "what is in it"), rows)]


def _rows(files: dict[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", text) for name, text in files.items()]
