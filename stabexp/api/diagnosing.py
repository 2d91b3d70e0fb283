"""`diagnose`: what the curves of any run say after the fact, also of one that we did not record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabexp import detectors as detection
from stabexp import experiment as experiments
from stabexp.api.runs import experiment_of, not_a_run, observed_loop
from stabexp.api.sources import foreign_log, own_run
from stabexp.api.watched import with_layers
from stabexp.config import guess
from stabexp.errors import ConfigError, StabexpError
from stabexp.records import StepRecord
from stabexp.tracking import DEFAULT_ROOT, RunDirectory, run_path

if TYPE_CHECKING:
    from stabexp.diagnosis import Diagnosis, Quantity


def diagnose(
    source: str | Path,
    *,
    root: Path | str = DEFAULT_ROOT,
    tracking_uri: str | None = None,
    loss: str | None = None,
    grad_norm: str | None = None,
    lr: str | None = None,
    detectors: Sequence[str] = (),
    settings: Mapping[str, Any] | Sequence[str] = (),
) -> Diagnosis:
    """Return whether a run diverged, where, how, and what its curves suggest as the cause.

    Args:
        source: The id of a run of ours or of one in MLflow, or a file or folder: trainer_state.json
            of the Hugging Face Trainer, a CSV (Lightning's metrics.csv), JSON lines, TensorBoard
            event files.
        root: Where our runs are kept.
        tracking_uri: Where MLflow keeps a run that is not ours; else MLFLOW_TRACKING_URI, else a
            store in `root` or the working directory.
        loss: The training loss's name in the log; found by its usual names when not given.
        grad_norm: The same for the gradient norm before clipping.
        lr: The same for the learning rate.
        detectors: Names of the detectors to ask; none takes the run's own, or the default ones.
        settings: What you know of the configuration, by name or as "name=value": precision,
            clip_norm (None for no clipping), warmup_steps, batch_size, weight_decay.

    Raises:
        RunNotFoundError: If there is neither a run nor a file of this name.
        ConfigError: If the log cannot be used: it is damaged, empty, too short, or has no loss.
        TrackingError: If MLflow cannot be read.
    """
    from stabexp.diagnosis import diagnose_log, keeper

    known = _settings(settings)
    ours = own_run(source, Path(root))
    if ours is not None:
        return _diagnose_own(ours, root, detectors=detectors, settings=known)
    names: dict[Quantity, str | None] = {"loss": loss, "grad_norm": grad_norm, "lr": lr}
    chosen = {quantity: name for quantity, name in names.items() if name is not None}
    log = foreign_log(source, keeper(chosen), tracking_uri=tracking_uri, root=Path(root))
    return diagnose_log(
        log,
        str(source),
        chosen=chosen,
        detectors=detection.build(dict.fromkeys(detectors), base=Path.cwd()),
        settings=known,
    )


def _diagnose_own(
    directory: RunDirectory,
    root: Path | str,
    *,
    detectors: Sequence[str],
    settings: Mapping[str, Any],
) -> Diagnosis:
    from stabexp.diagnosis import diagnose_records

    if directory.kind != "run":
        raise not_a_run(directory.run_id, directory)
    warnings = []
    known: dict[str, Any] = {}
    asked: Mapping[str, Any] = dict.fromkeys(detectors)
    base = Path.cwd()
    try:
        experiment, known, folder = _configured(directory)
        if not asked:
            asked, base = experiment.detectors, folder
    except StabexpError as error:
        warnings.append(f"how it was configured is not known, so default detectors judge: {error}")
    records = with_layers(directory, directory.read_steps())
    return diagnose_records(
        records,
        directory.run_id,
        detectors=detection.build(asked, base=base),
        settings={**known, **settings},
        next_steps=_next_steps(directory, Path(root)),
        warnings=warnings,
        checkpoint=_last_good(directory, records),
        run=_in_commands(directory, Path(root)),
        told=[str(event["message"]) for event in directory.read_events() if "message" in event],
    )


def _last_good(directory: RunDirectory, records: Sequence[StepRecord]) -> int | None:
    """Return the step of the checkpoint that a replay would start from, None without one."""
    found = directory.divergence()
    if found is None or not (directory.path / "checkpoints").is_dir():
        return None
    from stabexp.state.checkpoints import CheckpointStore  # imports torch

    infos = CheckpointStore.reader(directory.path / "checkpoints").infos()
    whole = [info.step for info in infos if info.finite and info.step <= found.onset]
    return detection.last_good_step(records, found.onset, whole)


def _configured(directory: RunDirectory) -> tuple[experiments.Experiment, dict[str, Any], Path]:
    """Return the experiment of a run, its settings as an opinion asks for them, and its folder."""
    experiment, folder = experiment_of(directory)
    known = (directory.path / "data.json").exists()
    facts = directory.read_json("data.json") if known else {}
    setup = experiments.setup_of(
        experiment, trivial_loss=facts.get("trivial_loss"), observed=observed_loop(directory)
    )
    return experiment, asdict(setup), folder


def _in_commands(directory: RunDirectory, root: Path) -> str:
    """Return the run's id as a command needs it, with its root where that is not the usual one."""
    # a run directory that was named itself is ROOT/runs/RUN_ID
    is_below = run_path(directory.run_id, root).absolute() == directory.path
    home = root if is_below else directory.path.parent.parent
    return directory.run_id + ("" if home == DEFAULT_ROOT else f" --root {home}")


def _next_steps(directory: RunDirectory, root: Path) -> dict[bool, tuple[str, str]]:
    """Return, by whether it diverged, what would prove the cause, and the command for it."""
    run = _in_commands(directory, root)
    bisected = any(
        child.kind == "bisect" and (child.path / "verdict.json").exists()
        for child in directory.children()
    )
    proof = (
        "replays can prove it: each suspect is changed alone, from a checkpoint before the onset",
        f"stabexp bisect {run}",
    )
    if bisected:
        proof = ("a bisect of this run has ended already; its verdict", f"stabexp log {run}")
    examine = "its training step can be examined for faults that do not show in the loss"
    return {True: proof, False: (examine, f"stabexp check {run}")}


def _settings(given: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """Return settings by name, those given as "name=value" read as in an experiment file."""
    from stabexp.diagnosis import KNOWABLE

    settings = dict(given) if isinstance(given, Mapping) else {}
    for text in () if isinstance(given, Mapping) else given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--setting {text}: expected NAME=VALUE, for example precision=fp16")
        settings[name.strip()] = guess(value.strip())
    for name, value in settings.items():
        if name not in KNOWABLE:
            raise ConfigError(f"--setting {name}: not known; there are {', '.join(KNOWABLE)}")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name == "precision" and isinstance(value, str):
            continue
        if name == "clip_norm" and (value is None or value == "none"):
            settings[name] = None
        elif name == "precision" or not number:
            raise ConfigError(f"--setting {name}={value}: expected {KNOWABLE[name]}")
    return settings
