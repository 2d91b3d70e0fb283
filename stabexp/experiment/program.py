"""From an experiment to what trains, what a bisect asks about it, and how a worker replays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stabexp.bisection.facts import Setup
from stabexp.config import (
    guess,
)
from stabexp.experiment.documents import SOURCE, open_source
from stabexp.experiment.sections import Experiment


def program(experiment: Experiment, *, base: Path) -> Any:
    """Return the `training.Program` of an experiment. Imports torch.

    Args:
        experiment: What to train.
        base: Folder that relative file references start from: the experiment file's.

    Raises:
        ConfigError: If the task or function cannot be loaded or its arguments are wrong.
    """
    import functools

    from stabexp.tasks import load_function, load_task
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
    )
    if experiment.train is not None:
        function = load_function(experiment.train.name, base=base)
        arguments = guess(experiment.train.args)
        return Program(
            settings=settings,
            train=functools.partial(function, **arguments),
            configuration=experiment.digest(),
            code=_code(function),
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
        code=_code(type(task)),
    )


def _code(made: Any) -> tuple[Path, ...]:
    """Return the file of a user's own class or function; none for what a package ships."""
    from stabexp.tasks.loading import source_file

    file = source_file(made)
    return (file,) if file else ()


def flat(experiment: Experiment) -> dict[str, Any]:
    """Return the settings with dotted names, as parameters to compare runs by."""
    found: dict[str, Any] = {}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                add(f"{prefix}.{key}" if prefix else key, item)
        else:
            found[prefix] = value

    left_out = {"name", "description", "expect", "bisect", "tracking", "on_divergence"}
    add("", experiment.model_dump(mode="json", exclude=left_out, exclude_none=True))
    return found


def setup_of(experiment: Experiment, *, trivial_loss: float | None = None) -> Setup:
    """Return how an experiment is configured, as far as the decision tree asks.

    `trivial_loss` is what a model that knows nothing scores.
    """
    micro_batch = experiment.batch.size * int(experiment.interventions.get("batch_size", 1))
    return Setup(
        lr=experiment.optimizer.lr if experiment.optimizer else None,
        warmup_steps=int(experiment.interventions.get("warmup", experiment.schedule.warmup_steps)),
        clip_norm=experiment.clip,
        precision=experiment.precision,
        batch_size=micro_batch * experiment.batch.accumulate,
        micro_batch=micro_batch,
        steps=experiment.steps,
        weight_decay=experiment.optimizer.weight_decay if experiment.optimizer else 0.0,
        trivial_loss=trivial_loss,
        own_loop=experiment.train is not None,
    )


def replay_job(directory: str) -> Any:
    """Return the job that a worker process runs for the diverged run in `directory`."""
    from stabexp.bisection.replay import job
    from stabexp.tracking.manifest import read_json

    source = read_json(Path(directory) / SOURCE)

    def build(patch: Any) -> Any:
        experiment, base = open_source(source, dict(patch))
        return program(experiment, base=base)

    return job(Path(directory), build)
