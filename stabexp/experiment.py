"""The experiment file as one typed object: everything `stabexp run exp.yaml` needs to know."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from stabexp.bisection.facts import Setup
from stabexp.config import (
    Document,
    Settings,
    component,
    guess,
    override,
    patched,
    read_document,
    validate,
)
from stabexp.detectors import DETECTORS
from stabexp.errors import ConfigError
from stabexp.interventions import INTERVENTIONS, PrecisionName
from stabexp.records import VARIABLES, Cause
from stabexp.tasks.settings import OptimizerSettings, ScheduleSettings

_NAME = re.compile(r"[\w.\- ]{1,80}$")


def _named(value: Any) -> Any:
    """Let `task: gpt` stand for `task: {name: gpt}`."""
    return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """Let `[non_finite, divergence]` stand for `{non_finite: {}, divergence: {}}`."""
    return {str(name): {} for name in value} if isinstance(value, list) else value


def _readable_name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(
            f"expected up to 80 letters, digits, '.', '-', '_' or spaces; got {value!r}"
        )
    return value


Plugins = Annotated[dict[str, dict[str, Any] | None], BeforeValidator(_listed)]
"""Plug-in name → its arguments."""


class TaskSettings(Settings):
    """What to train: a built-in task or a class of your own."""

    name: str
    """A built-in (`stabexp list tasks`), `path/to/file.py:Class` or `package.module:Class`."""

    args: dict[str, Any] = Field({})
    """Arguments of the task."""


class TrainSettings(Settings):
    """A training function of your own, which takes a `stabexp.Run`."""

    name: str
    """`path/to/file.py:function` or `package.module:function`."""

    args: dict[str, Any] = Field({})
    """Keyword arguments passed after the run."""


class BatchSettings(Settings):
    """How many samples make one update."""

    size: int = Field(32, ge=1)
    """Samples per micro-batch."""

    accumulate: int = Field(1, ge=1)
    """Micro-batches per update; the loss is divided by it."""

    workers: int = Field(0, ge=0, le=64)
    """Processes that prepare batches ahead; 0 prepares them in the training process."""


class CheckpointSettings(Settings):
    """When to save the full state, and how many states to keep."""

    every: int = Field(50, ge=1)
    """Steps between checkpoints. Step 0 and the last good one are always kept."""

    keep: int = Field(3, ge=1)
    """How many of the newest to keep."""


class BisectSettings(Settings):
    """How to look for the cause."""

    variables: list[Literal["learning_rate", "warmup", "clip_norm", "precision", "batch_size"]] = (
        Field(list(VARIABLES))  # type: ignore[arg-type]
    )
    """Which variables to change, one at a time."""

    budget: int | None = Field(None, ge=1)
    """Most steps to replay in all; when it runs out the verdict is inconclusive. Null: no limit."""

    workers: int = Field(2, ge=1, le=256)
    """Worker processes that run trials side by side."""


class TrackingSettings(Settings):
    """Where the results go."""

    uri: str | None = None
    """MLflow tracking URI; null takes MLFLOW_TRACKING_URI, else a local store in stabexp_runs/."""

    experiment: str = "stabexp"
    """MLflow experiment."""


class Experiment(Settings):
    """One training and how to watch it."""

    name: Annotated[str, AfterValidator(_readable_name)]
    """What to call runs of this experiment."""

    description: str = ""
    """What the experiment shows, for people."""

    expect: Literal[Cause, "healthy"] | None = None
    """The verdict this experiment is known to deserve; only tests and benchmarks read it."""

    seed: int = Field(0, ge=0)
    """Decides initialisation, data order and every random draw."""

    steps: int = Field(200, ge=1)
    """Optimizer updates in all."""

    device: str = "cpu"
    """"cpu", "cuda", "cuda:1", "mps"."""

    deterministic: bool = True
    """Use deterministic algorithms only; without it a replay may not reproduce the run."""

    threads: int | None = Field(None, ge=1)
    """torch threads on the CPU; null leaves torch's choice. Replays use the same number."""

    task: Annotated[TaskSettings, BeforeValidator(_named)] | None = None
    """What to train. Give either this or `train`."""

    train: Annotated[TrainSettings, BeforeValidator(_named)] | None = None
    """A training function of your own. Give either this or `task`."""

    optimizer: OptimizerSettings | None = None
    """Required with `task`; a `train` function builds its own."""

    schedule: Annotated[ScheduleSettings, BeforeValidator(_named)] = ScheduleSettings()
    """Learning rate over the steps."""

    clip: float | None = Field(None, gt=0)
    """Largest total gradient norm (L2, after unscaling); null does not clip."""

    precision: PrecisionName = "fp32"
    """Number format."""

    batch: BatchSettings = BatchSettings()
    """Samples per update."""

    checkpoint: CheckpointSettings = CheckpointSettings()
    """Saving the full state."""

    monitors: Plugins = Field({"layers": {}})
    """What to measure besides the standard figures: name → arguments."""

    detectors: Plugins = Field({})
    """When the run counts as diverged: name → arguments. Empty takes the default set."""

    on_divergence: Literal["stop"] = "stop"
    """What to do when it diverged."""

    interventions: dict[str, float | int | str] = Field({})
    """Variable → dose, in force for the whole run; how a fix is applied to a `train` function."""

    bisect: BisectSettings = BisectSettings()
    """Looking for the cause."""

    tracking: TrackingSettings = TrackingSettings()
    """Where results go."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.task is None and self.train is None:
            raise ValueError("task: is missing; add it, or train: with a function of your own")
        if self.task is not None and self.train is not None:
            raise ValueError("train: is given beside task; remove one of the two")
        if self.task is not None and self.optimizer is None:
            raise ValueError(
                "optimizer: is missing; a task needs one, for example {name: adamw, lr: 1e-3}"
            )
        if self.train is not None and self.optimizer is not None:
            raise ValueError(
                "optimizer: a train function builds its own optimizer; remove this section"
            )
        if self.schedule.warmup_steps >= self.steps:
            raise ValueError(
                f"schedule.warmup_steps: {self.schedule.warmup_steps} is not below steps "
                f"({self.steps}), so the full learning rate would never be reached"
            )
        return self

    def digest(self) -> str:
        """Return a sha256 over every setting that decides the training's course."""
        kept = self.model_dump(
            mode="json",
            exclude={"name", "description", "expect", "bisect", "tracking", "on_divergence"},
        )
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def load(path: Path, overrides: list[str] | None = None) -> tuple[Experiment, Document]:
    """Read an experiment file, with `key=value` overrides.

    Raises:
        ConfigError: Naming every mistake with its place and what is allowed.
    """
    document = override(read_document(path), overrides or [])
    experiment = from_document(document)
    _check_training(experiment, document, base=path.parent)
    return experiment, document


def from_document(document: Document) -> Experiment:
    """Return the experiment in a document, with plug-in names and arguments checked too."""
    experiment = validate(Experiment, document)
    tables: dict[str, Any] = {"detectors": DETECTORS, "interventions": INTERVENTIONS}
    if experiment.monitors != Experiment.model_fields["monitors"].default:
        from stabexp.monitors import MONITORS  # imports torch

        tables["monitors"] = MONITORS
    for kind, table in tables.items():
        for name, args in getattr(experiment, kind).items():
            values = {"dose": args} if kind == "interventions" else args
            component(table, kind, name, values, document=document)
    return experiment


def _check_training(experiment: Experiment, document: Document, *, base: Path) -> None:
    """Check what needs torch and the user's own files, while lines of the file can be named."""
    from stabexp.tasks import load_function, task_class

    kind = "task" if experiment.task is not None else "train"
    named = experiment.task or experiment.train
    assert named is not None
    at = (kind, "name") if (kind, "name") in document.lines else (kind,)
    try:
        made = (task_class if experiment.task else load_function)(named.name, base=base)
    except ConfigError as error:
        problem = str(error).removeprefix("task ").removeprefix("function ")
        raise ConfigError(f"{document.place(at)}: {problem}") from error
    if isinstance(made, type):
        own = Document(
            document.name, {kind: {"args": named.args}}, document.lines, document.origins
        )
        validate(made, own, at=(kind, "args"))
        return
    signature = inspect.signature(made)
    try:
        signature.bind(None, **guess(named.args))
    except TypeError as error:
        place = document.place((kind, "args"))
        raise ConfigError(f"{place}: {error}; it is {made.__name__}{signature}") from None


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


SOURCE = "source.json"
"""In a run directory: the experiment as it was given, with which its replays are built."""


def open_source(
    source: dict[str, Any], patch: dict[str, Any] | None = None
) -> tuple[Experiment, Path]:
    """Return a stored experiment, with a fix's dotted keys set, and its base folder."""
    document = Document.from_json(source)
    if patch:
        document = patched(document, patch)
    return from_document(document), Path(source["base"])


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


def setup_of(experiment: Experiment) -> Setup:
    """Return how an experiment is configured, as far as the decision tree asks."""
    micro_batch = experiment.batch.size * int(experiment.interventions.get("batch_size", 1))
    return Setup(
        lr=experiment.optimizer.lr if experiment.optimizer else None,
        warmup_steps=int(experiment.interventions.get("warmup", experiment.schedule.warmup_steps)),
        clip_norm=experiment.clip,
        precision=experiment.precision,
        batch_size=micro_batch * experiment.batch.accumulate,
        micro_batch=micro_batch,
        steps=experiment.steps,
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
