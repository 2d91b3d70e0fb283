"""From an experiment to what trains, what a bisect asks about it, and how a worker replays it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stabexp.bisection.facts import Setup
from stabexp.config import Component, guess
from stabexp.experiment.documents import IN_MLFLOW_RUN, SOURCE, open_source
from stabexp.experiment.references import find_function
from stabexp.experiment.sections import Experiment
from stabexp.experiment.user_code import code_files
from stabexp.plugins import own_classes

ENDLESS = 2**31 - 1
"""Planned steps of a run whose training function never told how long it means to go on."""


def program(experiment: Experiment, *, base: Path, with_code: bool = True) -> Any:
    """Return the `training.Program` of an experiment. Imports torch.

    Args:
        experiment: What to train.
        base: Folder that relative file references start from: the experiment file's.
        with_code: Whether to list the files of the user's own code, for a fingerprint.

    Raises:
        ConfigError: If the task or function cannot be loaded or its arguments are wrong.
    """
    import functools

    from stabexp.tasks import load_task
    from stabexp.training import Program, RunSettings, yaml_loop

    settings = RunSettings(
        name=experiment.name,
        seed=experiment.seed,
        steps=experiment.steps,
        device=experiment.device,
        deterministic=experiment.deterministic,
        threads=experiment.threads,
        lr=experiment.optimizer.lr if experiment.optimizer else None,
        precision=experiment.precision,
        clip_norm=experiment.clip,
        warmup_steps=experiment.schedule.warmup_steps,
        batch_size=experiment.batch.size,
        accumulate=experiment.batch.accumulate,
        loader_workers=experiment.batch.workers,
        checkpoint_every=experiment.checkpoint.every,
        checkpoint_keep=experiment.checkpoint.keep,
        monitors=experiment.monitors,
        detectors=experiment.detectors,
        interventions=experiment.interventions,
        stabilisers=experiment.stabilisers,
        show_samples=experiment.bisect.show_samples,
        base=base,
    )
    plugins = _plugin_files(experiment, base=base) if with_code else ()
    if experiment.train is not None:
        function = find_function(experiment.train.name, base=base)
        arguments = guess(experiment.train.args)
        return Program(
            settings=settings,
            train=functools.partial(function, **arguments),
            configuration=experiment.digest(),
            own_loop=True,
            code=(*code_files(function), *plugins) if with_code else (),
        )
    assert experiment.task is not None
    assert experiment.optimizer is not None
    task = load_task(experiment.task.name, experiment.task.args, base=base)
    train = yaml_loop(task, experiment.optimizer, experiment.schedule)
    return Program(
        settings=settings,
        train=train,
        describe=task.describe,
        configuration=experiment.digest(),
        code=(*code_files(type(task)), *plugins) if with_code else (),
    )


def _plugin_files(experiment: Experiment, *, base: Path) -> tuple[Path, ...]:
    """Return the files of the plug-ins of the user's own, which decide the training like its code.

    A detector is not among them: it decides when a run ends, not how it goes.
    """
    from stabexp.interventions import Intervention
    from stabexp.monitors import Monitor
    from stabexp.stabilisers import Stabiliser

    sections: tuple[tuple[str, Mapping[str, Any], type[Component]], ...] = (
        ("interventions", experiment.interventions, Intervention),
        ("stabilisers", experiment.stabilisers, Stabiliser),
        ("monitors", experiment.monitors, Monitor),
    )
    files = (file for kind in own_classes(sections, base=base) for file in code_files(kind))
    return tuple(dict.fromkeys(files))


def flat(experiment: Experiment) -> dict[str, Any]:
    """Return the settings with dotted names, as parameters to compare runs by."""
    found: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                add(f"{prefix}.{key}" if prefix else key, item)
        else:
            found[prefix] = value

    left_out = {"name", "description", "expect", "bisect", "tracking", "on_divergence", "on_event"}
    add("", experiment.model_dump(mode="json", exclude=left_out, exclude_none=True))
    return found


def setup_of(
    experiment: Experiment,
    *,
    trivial_loss: float | None = None,
    observed: Mapping[str, Any] | None = None,
) -> Setup:
    """Return how an experiment is configured, as far as the decision tree asks.

    Args:
        experiment: The experiment.
        trivial_loss: What a model that knows nothing scores.
        observed: What a training function of the user's own was seen to do, of which its file says
            nothing: any of steps, lr, warmup_steps, weight_decay, clip_norm, precision,
            micro_batch and accumulate. Not asked for a task, whose settings are all in the file.
    """
    own_loop = experiment.train is not None
    seen = {key: value for key, value in (observed or {}).items() if value is not None and own_loop}
    optimizer = experiment.optimizer
    always = experiment.interventions
    # What is seen has an intervention on the batch in it already.
    sized = experiment.batch.size * int(always.get("batch_size", 1))
    micro_batch = int(seen.get("micro_batch", sized))
    warmup = always.get("warmup", seen.get("warmup_steps", experiment.schedule.warmup_steps))
    clips = (experiment.clip, always.get("clip_norm"), seen.get("clip_norm"))
    return Setup(
        lr=optimizer.lr if optimizer else seen.get("lr"),
        warmup_steps=int(warmup),
        # Where two clip, the lower one decides.
        clip_norm=min((float(norm) for norm in clips if norm is not None), default=None),
        precision=seen.get("precision", experiment.precision),
        batch_size=micro_batch * int(seen.get("accumulate", experiment.batch.accumulate)),
        micro_batch=micro_batch,
        steps=experiment.steps or int(seen.get("steps", ENDLESS)),
        weight_decay=optimizer.weight_decay if optimizer else seen.get("weight_decay", 0.0),
        trivial_loss=trivial_loss,
        own_loop=own_loop,
        streamed=bool(seen.get("streamed", False)),
    )


def replay_job(directory: str) -> Any:
    """Return the job that a worker process runs for the diverged run in `directory`.

    What the user's own code tells MLflow in it, also while its file is loaded, goes nowhere.
    """
    from stabexp.bisection.replay import job
    from stabexp.tracking.manifest import read_json
    from stabexp.tracking.muted import muted

    source = read_json(Path(directory) / SOURCE)
    active_run = bool(source.get(IN_MLFLOW_RUN))

    def build(patch: Any) -> Any:
        experiment, base = open_source(source, dict(patch))
        return program(experiment, base=base)

    with muted(active_run=active_run):
        work = job(Path(directory), build)

    def quietly(request: dict[str, Any]) -> dict[str, Any]:
        with muted(active_run=active_run):
            return work(request)

    return quietly
