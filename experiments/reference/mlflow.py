"""What MLflow receives of a run: tags, parameters, metrics, artifacts."""

from __future__ import annotations

from pathlib import Path

from experiments.reference.constants import explained, matching
from experiments.reference.markdown import joined, table
from stabexp.records import StepRecord
from stabexp.tracking.step_metrics import AFTER, BEFORE, WHOLE_STEPS, metric_rows

_LEAD = """What stabexp writes to MLflow: a run, each of its bisects and each trial are MLflow
runs, nested in this order. The files of the [run directory](run_directory.md) are the
truth; this is a view of them."""

_TAGS = {
    "stabexp.run_id": "the run's own id, by which every command finds it",
    "stabexp.kind": "run, bisect or trial",
    "stabexp.role": "run, bisect, recovery, or a trial's part: control, placebo, dose, proof …",
    "stabexp.description": "`description` of the experiment file",
    "stabexp.status": "healthy or diverged",
    "stabexp.pattern": "how the loss left its healthy range",
    "stabexp.onset": "first step that looked wrong",
    "stabexp.detected": "step at which the detector was sure",
    "stabexp.finding": "what the detector saw, in a sentence",
    "stabexp.checkpoints": "where the checkpoints are",
    "stabexp.cause": "the verdict, at the run and at its bisect",
    "stabexp.confidence": "how often verdicts with this evidence were right, 0 to 1",
    "stabexp.fix": "what to change, as JSON: dotted key → value",
    "stabexp.reason": "of a trial or a recovery: why it was made",
    "stabexp.outcome": "of a trial: cured, stalled, delayed, diverged, inconclusive",
    "stabexp.recovery": "how a recovery ended",
    "stabexp.recovered_by": "the run that trained to the end",
    "stabexp.recovers": "of a run that goes on: the one that crashed",
    "stabexp.remedy": "of a run that goes on: what is done differently",
    "stabexp.from_step": "of a run that goes on: the step it starts from",
    "stabexp.rollbacks": "how often a recovery went back",
}
_ALSO_PACKAGES = {"stabexp.recovery"}
_MLFLOW_TAGS = {
    "mlflow.parentRunId": "the run above",
    "mlflow.runName": "the run's id; of a trial what it changes",
    "mlflow.runColor": "of curves and bars: by outcome",
    "mlflow.loggedArtifacts": "which files MLflow shows as tables",
    "mlflow.note.content": "the description: what was found, with the report's picture",
    "mlflow.user": "who ran it",
    "mlflow.source.name": "the program",
    "mlflow.source.git.commit": "of the working directory",
    "mlflow.source.git.branch": "of the working directory",
    "mlflow.source.git.repoURL": "of the working directory",
}
_METRICS = {
    "loss": "mean loss over the step's micro-batches",
    "loss_log10": "its logarithm, held between -12 and 6: 1e95 would press all curves flat",
    "grad_norm": "L2 norm over all gradients, unscaled, before clipping",
    "grad_norm_log10": "its logarithm, held alike",
    "lr": "learning rate of the first parameter group",
    "update_ratio": "how far the update moved the sampled parameters, relative to their size",
    "param_norm": "L2 norm over all trainable parameters",
    "loss_scale": "with a gradient scaler",
    "clip_coefficient": "factor of the clipping, from the first step that was clipped on",
    "samples_per_second": "speed, data loading included",
    "nonfinite": "how many things of the step are NaN or Inf; only where any is",
    "layers/LAYER/FIGURE": "layer by layer, at the monitors' interval",
}


def page() -> str:
    """Return the page."""
    package = Path(__file__).parents[2] / "stabexp"
    found = {
        text
        for text in matching(r"stabexp\.[a-z_]+")
        if not _is_code(package, text.removeprefix("stabexp."))
    }
    explained("tags", found, _TAGS, place=__name__)
    ours = matching(r"mlflow\.[A-Za-z.]+") - {"mlflow.db", "mlflow.data.context"}
    explained(
        "MLflow tags", {tag for tag in ours if not tag.endswith(".")}, _MLFLOW_TAGS, place=__name__
    )
    explained("metrics", _metrics(), _METRICS, place=__name__)
    compared = ", ".join(f"`{row.key}`" for row in metric_rows(_RECORD, "trial", clipped=True))
    return joined(
        "# MLflow",
        _LEAD,
        "## Tags",
        table(("tag", "meaning"), [(f"`{name}`", text) for name, text in _TAGS.items()]),
        "And of MLflow's own:",
        table(("tag", "meaning"), [(f"`{name}`", text) for name, text in _MLFLOW_TAGS.items()]),
        "## Parameters",
        "Every setting of [the experiment file](experiment_file.md) by its dotted name, so that "
        "runs can be compared by them; those that do not decide the training (name, bisect, "
        "tracking) are left out. A trial has them below `settings.`, with the value that "
        "it changes, and `changed`, `dose`, `outcome` and `start_step`.",
        "## Metrics of a step",
        table(("metric", "meaning"), [(f"`{name}`", text) for name, text in _METRICS.items()]),
        f"And whatever monitors measure, by the names that they give. A trial gets {compared}: "
        "the curves that are compared.",
        f"A long run is thinned in MLflow: all of the first {WHOLE_STEPS:,} steps, then 500 for "
        f"every doubling of the length, and whole the last {BEFORE} steps and those from {BEFORE} "
        f"before to {AFTER} after the first non-finite number of an episode. The step log keeps "
        "everything.",
        "## Artifacts",
        "The experiment file, the fingerprint and the environment, the step log, the pictures of "
        "the layers, the index of the checkpoints (not their contents), and at the run and its "
        "bisect the report, `verdict.html`, with `verdict.json`.",
    )


_RECORD = StepRecord(
    step=0,
    time=0.0,
    loss=1.0,
    lr=0.1,
    grad_norm=1.0,
    update_ratio=1e-3,
    param_norm=1.0,
    loss_scale=1024.0,
    seconds=0.1,
    batch_size=16,
    nonfinite_params=1,
    layers={"LAYER": {"FIGURE": 1.0}},
)


def _metrics() -> set[str]:
    return {row.key for row in metric_rows(_RECORD, "run", clipped=True)}


def _is_code(package: Path, name: str) -> bool:
    """Say whether "stabexp.name" is a module, or a call that a message names."""
    import stabexp

    if f"stabexp.{name}" in _ALSO_PACKAGES:
        return False
    home = package / name
    called = {"bisect", "check_setup", "diagnose_layers", "lr_find", "recover", "run"}
    return (
        home.is_dir() or home.with_suffix(".py").exists() or name in called | set(stabexp.__all__)
    )
